//! The parts of a message between program and carrier: its address, and those of the program's
//! message.

use std::mem::ManuallyDrop;
use std::ptr::null_mut;

use libc::{iovec, msghdr};
use rustix::io::Errno;

use crate::datagram::HEADER;
use crate::few::Few;

/// Most parts of a message, as the kernel's (`UIO_MAXIOV`).
const MOST_PARTS: usize = 1024;
/// Parts of a message for which no memory is allocated, with the one for its address.
const FEW_PARTS: usize = 65;

/// The parts of a message. Without a destructor, because the thread may be cancelled in a call with
/// them.
pub(super) type Parts = ManuallyDrop<Few<iovec, FEW_PARTS>>;

/// The parts of a message behind one for its address. Empty parts are left out if there would be
/// more than the kernel takes.
///
/// # Safety
/// `parts` points to `count` parts.
pub(super) unsafe fn behind(
    header: *mut [u8; HEADER],
    parts: *const iovec,
    count: usize,
) -> Result<Parts, Errno> {
    const NONE: iovec = iovec { iov_base: null_mut(), iov_len: 0 };
    if count > MOST_PARTS {
        return Err(Errno::MSGSIZE);
    }
    let mut all = Few::new(NONE);
    all.push(iovec { iov_base: header.cast(), iov_len: HEADER });
    for index in 0..count {
        // SAFETY: as the caller promises.
        let part = unsafe { parts.add(index).read_unaligned() };
        if part.iov_len > 0 || count < MOST_PARTS {
            all.push(part);
        }
    }
    Ok(ManuallyDrop::new(all))
}

/// A message of these parts, without a name.
pub(super) fn message(parts: &mut [iovec]) -> msghdr {
    msghdr {
        msg_name: null_mut(),
        msg_namelen: 0,
        msg_iov: parts.as_mut_ptr(),
        msg_iovlen: parts.len(),
        msg_control: null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixDatagram;
    use std::ptr::{from_mut, from_ref};

    use super::*;
    use crate::real;

    /// Parts of a byte each, as the kernel takes them.
    fn parts(bytes: &mut [u8]) -> Vec<iovec> {
        bytes.iter_mut().map(|byte| iovec { iov_base: from_mut(byte).cast(), iov_len: 1 }).collect()
    }

    #[test]
    fn a_datagram_may_have_many_parts() {
        let mut header = [9; HEADER];
        let (one, other) = UnixDatagram::pair().unwrap();
        for count in [0, 1, 64, 65, 1000, MOST_PARTS - 1] {
            let mut bytes: Vec<u8> = (0..count).map(|byte| byte as u8).collect();
            let list = parts(&mut bytes);
            // SAFETY: there are so many parts.
            let mut all = unsafe { behind(from_mut(&mut header), list.as_ptr(), count) }.unwrap();
            let message = message(all.items_mut());
            // SAFETY: the message and its parts are this frame's.
            let sent = unsafe { real::sendmsg(one.as_raw_fd(), from_ref(&message), 0) };
            drop(ManuallyDrop::into_inner(all));
            assert_eq!(sent, (HEADER + count).cast_signed());
            let mut room = [0; 2000];
            let got = other.recv(&mut room).unwrap();
            assert_eq!((&room[..HEADER], &room[HEADER..got]), (&header[..], &bytes[..]));
        }
    }

    #[test]
    fn empty_parts_do_not_count_towards_the_kernels_limit() {
        let (mut header, mut bytes) = ([9; HEADER], [1; MOST_PARTS]);
        let mut list = parts(&mut bytes);
        list[5].iov_len = 0;
        // SAFETY: there are so many parts.
        let all = unsafe { behind(from_mut(&mut header), list.as_ptr(), MOST_PARTS) }.unwrap();
        assert_eq!(all.items().len(), MOST_PARTS);
        drop(ManuallyDrop::into_inner(all));
        // SAFETY: nothing is read.
        let refused = unsafe { behind(from_mut(&mut header), list.as_ptr(), MOST_PARTS + 1) };
        assert_eq!(refused.map(|_| ()), Err(Errno::MSGSIZE));
    }
}
