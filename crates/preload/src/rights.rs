//! Descriptors that a program passes to another process in a message (`SCM_RIGHTS`, `man 7 unix`).

use std::os::fd::RawFd;

use crate::descriptors::make_plain;
use crate::say::complain;
use crate::state::TABLE;
use crate::table::Held;

/// Size of a `struct cmsghdr`: length including the header, level and type.
const HEADER: usize = 16;

/// The descriptors in the control data of a message.
fn passed(mut control: &[u8]) -> impl Iterator<Item = RawFd> {
    let mut rights: &[u8] = &[];
    std::iter::from_fn(move || {
        loop {
            if let Some((fd, rest)) = rights.split_first_chunk() {
                rights = rest;
                return Some(RawFd::from_ne_bytes(*fd));
            }
            let len = usize::from_ne_bytes(*control.first_chunk()?);
            let level = i32::from_ne_bytes(*control.get(8..)?.first_chunk()?);
            let kind = i32::from_ne_bytes(*control.get(12..)?.first_chunk()?);
            let data = control.get(HEADER..len)?;
            control = control.get(len.next_multiple_of(8)..).unwrap_or_default();
            if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                rights = data;
            }
        }
    })
}

/// Turns listeners that are about to be passed into TCP sockets again. The receiver would not have
/// their hidden descriptors.
pub(crate) fn pass(control: &[u8]) {
    for fd in passed(control) {
        let Held::Listener(listener) = TABLE.get(fd) else { continue };
        match make_plain(fd, listener) {
            Ok(()) => complain!(
                "descriptor {fd} listens for TCP only from now on: it is passed to another process\n\
                 hint: accept in the process that listens, or start the other process by fork or exec"
            ),
            Err(error) => complain!(
                "descriptor {fd} cannot be used by the process that it is passed to: {error}\n\
                 hint: remove its address from the map (`listen …`)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(len: usize, level: i32, kind: i32) -> Vec<u8> {
        [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes()].concat()
    }

    #[test]
    fn descriptors_are_found_among_other_control_data() {
        let other =
            [header(20, libc::SOL_SOCKET, libc::SCM_CREDENTIALS), vec![1, 2, 3, 4, 0, 0, 0, 0]].concat();
        let numbers: Vec<u8> = [7i32, 900, 12].into_iter().flat_map(i32::to_ne_bytes).collect();
        let rights = [header(28, libc::SOL_SOCKET, libc::SCM_RIGHTS), numbers, vec![0; 4]].concat();
        let all = [other.clone(), rights.clone(), other, rights].concat();
        assert_eq!(passed(&all).collect::<Vec<_>>(), [7, 900, 12, 7, 900, 12]);
    }

    proptest::proptest! {
        #[test]
        fn any_control_data_has_descriptors_or_none(control in proptest::collection::vec(proptest::num::u8::ANY, 0..100)) {
            assert!(passed(&control).count() <= control.len());
        }
    }
}
