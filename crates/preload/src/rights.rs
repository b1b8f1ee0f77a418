//! Descriptors that a program passes to another process in a message (`SCM_RIGHTS`, `man 7 unix`).

use std::os::fd::RawFd;

use crate::listener::{attach_again, hand_over};
use crate::rings::closing;
use crate::state::{TABLE, map};
use crate::table::Held;
use crate::{adopt, gather, lookup, rings};

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

/// Gives up the VMCI ports of listeners that are about to be passed, so that the receiver can have
/// them. Returns true if there was one. Sends what connections have gathered, and has them leave
/// their channels.
pub(crate) fn pass(control: &[u8]) -> bool {
    let mut any = false;
    for fd in passed(control) {
        match TABLE.get(fd) {
            Held::Listener(listener) => {
                any |= listener.vmci.is_some();
                hand_over(listener);
            }
            Held::Connection(_) => {
                gather::share(fd);
                rings::leave(fd);
            }
            _ => {}
        }
    }
    any
}

/// Takes the VMCI ports back after [`pass`], because the message was not sent.
pub(crate) fn keep(control: &[u8]) {
    for fd in passed(control) {
        if let Some(listener) = lookup::listener(fd)
            && listener.vmci.is_none()
        {
            attach_again(fd, listener);
        }
    }
}

/// Examines descriptors that this process has received: listeners get VMCI sockets.
pub(crate) fn receive(control: &[u8]) {
    for fd in passed(control) {
        // The number may have been closed without the library noticing.
        let _ = closing(fd);
        if let Some(map) = map() {
            adopt::listener(fd, map);
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
