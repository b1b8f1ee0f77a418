//! Datagram sockets of `AF_VSOCK`: `socket`, `bind`, and what `sends` and `receives` do for them.
//! Messages between program and carrier begin with an address, which these functions add and
//! remove.

mod parts;

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{from_mut, from_ref, null};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, sockaddr_vm, socklen_t, ssize_t, timespec};
use rustix::io::Errno;

use self::parts::{behind, message};
use super::{fail, guard};
use crate::datagram::{self, Address, HEADER, Slot, find};
use crate::real;
use crate::sys::errno;

/// `socket(2)`: opens a datagram socket of `AF_VSOCK` if the kernel has none (`ENODEV`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let fd = unsafe { real::socket(family, kind, protocol) };
    if fd >= 0 || family != libc::AF_VSOCK || kind & !FLAGS != libc::SOCK_DGRAM || errno() != Errno::NODEV {
        return fd;
    }
    let open = || datagram::open(kind & libc::SOCK_NONBLOCK != 0, kind & libc::SOCK_CLOEXEC != 0);
    guard(Err(Errno::NODEV), open).unwrap_or_else(fail)
}

/// `bind(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let Some(slot) = find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { real::bind(fd, address, len) };
    };
    // SAFETY: as the caller promises.
    let Some(address) = (unsafe { read_address(address, len) }) else { return fail(Errno::INVAL) };
    guard(Err(Errno::NOMEM), || datagram::bind(slot, address)).map_or_else(fail, |()| 0)
}

/// `connect(2)` of a datagram socket. An address of no family undoes it.
///
/// # Safety
/// As for connect.
pub(super) unsafe fn connect(slot: &'static Slot, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as the caller promises.
    let to = match unsafe { (super::connections::family_of(address, len), read_address(address, len)) } {
        (Some(libc::AF_UNSPEC), _) => None,
        (_, Some(to)) => Some(to),
        _ => return fail(Errno::INVAL),
    };
    guard(Err(Errno::NOMEM), || datagram::connect(slot, to)).map_or_else(fail, |()| 0)
}

/// Reads an address of `AF_VSOCK` that a program passes.
///
/// # Safety
/// `address` is null or points to `len` bytes.
unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Option<Address> {
    if address.is_null() || (len as usize) < size_of::<sockaddr_vm>() {
        return None;
    }
    // SAFETY: there are enough bytes, as the caller promises.
    let address = unsafe { address.cast::<sockaddr_vm>().read_unaligned() };
    let is_vsock = c_int::from(address.svm_family) == libc::AF_VSOCK;
    is_vsock.then_some(Address { cid: address.svm_cid, port: address.svm_port })
}

/// Stores an address for a program, as far as there is room, and its length.
///
/// # Safety
/// `address` is null, or `len` points to the size of what it points to.
pub(super) unsafe fn write_address(address: *mut sockaddr, len: *mut socklen_t, value: Address) -> c_int {
    if address.is_null() || len.is_null() {
        return fail(Errno::FAULT);
    }
    let value = sockaddr_vm {
        svm_family: libc::AF_VSOCK as libc::sa_family_t,
        svm_reserved1: 0,
        svm_port: value.port,
        svm_cid: value.cid,
        svm_zero: [0; 4],
    };
    // SAFETY: as the caller promises.
    let room = unsafe { len.read_unaligned() } as usize;
    let count = room.min(size_of_val(&value));
    // SAFETY: not more bytes than source and target have.
    unsafe { from_ref(&value).cast::<u8>().copy_to_nonoverlapping(address.cast::<u8>(), count) };
    // SAFETY: as the caller promises.
    unsafe { len.write_unaligned(size_of_val(&value) as socklen_t) };
    0
}

/// Sends a datagram of these parts.
///
/// # Safety
/// `parts` points to `count` parts; `to` is null or points to `to_len` bytes.
pub(super) unsafe fn send(
    fd: c_int,
    slot: &'static Slot,
    (parts, count): (*const iovec, usize),
    flags: c_int,
    (to, to_len): (*const sockaddr, socklen_t),
) -> ssize_t {
    // SAFETY: as the caller promises.
    let named = unsafe { read_address(to, to_len) };
    if !to.is_null() && named.is_none() {
        return fail(Errno::INVAL);
    }
    if flags & libc::MSG_OOB != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    let mut header = [0; HEADER];
    // SAFETY: as the caller promises.
    let mut all = match unsafe { behind(from_mut(&mut header), parts, count) } {
        Ok(all) => all,
        Err(error) => return fail(error),
    };
    let parts = all.items().get(1..).unwrap_or_default();
    let len = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.iov_len));
    match guard(Err(Errno::NOMEM), || datagram::destination(slot, named, len)) {
        Ok(to) => header = to.to_bytes(),
        Err(error) => {
            drop(ManuallyDrop::into_inner(all));
            return fail(error);
        }
    }
    if let Some(first) = all.items_mut().first_mut() {
        first.iov_base = header.as_mut_ptr().cast();
    }
    let message = message(all.items_mut());
    let flags = flags & libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message and its parts are this frame's; the program's parts are as it promises.
    let sent = unsafe { real::sendmsg(fd, from_ref(&message), flags) };
    let error = errno();
    drop(ManuallyDrop::into_inner(all));
    match sent {
        // The carrier has ended.
        ..0 if error == Errno::PIPE => fail(Errno::NETDOWN),
        ..0 => fail(error),
        _ => sent - HEADER.cast_signed(),
    }
}

/// A datagram that was received.
pub(super) struct Received {
    pub(super) len: ssize_t,
    pub(super) from: Address,
    /// `MSG_TRUNC`, if the parts had no room for it.
    pub(super) flags: c_int,
}

/// Receives a datagram into these parts; `None` if that fails, with `errno`.
///
/// # Safety
/// `parts` points to `count` parts.
pub(super) unsafe fn receive(
    fd: c_int,
    (parts, count): (*const iovec, usize),
    flags: c_int,
) -> Option<Received> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // There are no errors in its queue.
        return fail_receive(Errno::AGAIN);
    }
    let mut header = [0; HEADER];
    // SAFETY: as the caller promises.
    let mut all = match unsafe { behind(from_mut(&mut header), parts, count) } {
        Ok(all) => all,
        Err(error) => return fail_receive(error),
    };
    let mut message = message(all.items_mut());
    // SAFETY: the message and its parts are this frame's; the program's parts are as it promises.
    let received = unsafe { real::recvmsg(fd, from_mut(&mut message), flags) };
    let error = errno();
    drop(ManuallyDrop::into_inner(all));
    match usize::try_from(received) {
        Err(_) => fail_receive(error),
        // The carrier has ended.
        Ok(..HEADER) => fail_receive(Errno::NETDOWN),
        Ok(_) => Some(Received {
            len: received - HEADER.cast_signed(),
            from: Address::from_bytes(header),
            flags: message.msg_flags & libc::MSG_TRUNC,
        }),
    }
}

fn fail_receive(error: Errno) -> Option<Received> {
    fail::<c_int>(error);
    None
}

/// Receives a datagram into one buffer, and its source into `from`, unless that is null.
///
/// # Safety
/// As for recvfrom.
pub(super) unsafe fn receive_into(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
    (from, from_len): (*mut sockaddr, *mut socklen_t),
) -> ssize_t {
    let part = iovec { iov_base: bytes, iov_len: len };
    // SAFETY: as the caller promises.
    let Some(received) = (unsafe { receive(fd, (from_ref(&part), 1), flags) }) else { return -1 };
    if !from.is_null() {
        // SAFETY: as the caller promises.
        unsafe { write_address(from, from_len, received.from) };
    }
    received.len
}

/// Receives a datagram into a message.
///
/// # Safety
/// As for recvmsg; the message is not null.
pub(super) unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the caller promises.
    let into = unsafe { &mut *message };
    // SAFETY: as the caller promises.
    let Some(received) = (unsafe { receive(fd, (into.msg_iov, into.msg_iovlen), flags) }) else { return -1 };
    if !into.msg_name.is_null() {
        let name = into.msg_name.cast();
        // SAFETY: as the caller promises.
        unsafe { write_address(name, &raw mut into.msg_namelen, received.from) };
    }
    into.msg_controllen = 0;
    into.msg_flags = received.flags;
    received.len
}

/// Sends a datagram of each message.
///
/// # Safety
/// As for sendmmsg.
pub(super) unsafe fn send_messages(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    each(count, |index| {
        // SAFETY: as the caller promises.
        let one = unsafe { &mut *messages.add(index) };
        // SAFETY: as the caller promises.
        let sent = unsafe { super::sends::sendmsg(fd, &raw const one.msg_hdr, flags) };
        one.msg_len = sent.max(0) as c_uint;
        sent >= 0
    })
}

/// Receives a datagram into each message.
///
/// # Safety
/// As for recvmmsg.
pub(super) unsafe fn receive_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *const timespec,
) -> c_int {
    each(count, |index| {
        // As the kernel does, which also looks at the timeout only between messages.
        let waits = index == 0 || flags & libc::MSG_WAITFORONE == 0 && timeout.is_null();
        let flags = flags & !libc::MSG_WAITFORONE | if waits { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: as the caller promises.
        let one = unsafe { &mut *messages.add(index) };
        // SAFETY: as the caller promises.
        let received = unsafe { receive_message(fd, &raw mut one.msg_hdr, flags) };
        one.msg_len = received.max(0) as c_uint;
        received >= 0
    })
}

/// Calls `one` for each of up to `count` messages. Returns the number of those that succeeded, or
/// the first one's failure.
fn each(count: c_uint, mut one: impl FnMut(usize) -> bool) -> c_int {
    /// The kernel's limit (`UIO_MAXIOV`).
    const MOST: c_uint = 1024;
    let count = count.min(MOST).cast_signed();
    match (0..count).find(|index| !one(index.unsigned_abs() as usize)) {
        Some(0) => -1,
        Some(done) => done,
        None => count,
    }
}

/// No address, for [`send`].
pub(super) const NOBODY: (*const sockaddr, socklen_t) = (null(), 0);

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_look_at_the_queue_of_errors_takes_no_datagram() {
        let (here, there) = UnixDatagram::pair().unwrap();
        there.send(&[0; HEADER + 2]).unwrap();
        let mut room = [0u8; 8];
        let part = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: one part, this frame's.
        let receive = |flags| unsafe { receive(here.as_raw_fd(), (&raw const part, 1), flags) };
        assert!(receive(libc::MSG_ERRQUEUE).is_none());
        assert_eq!(errno(), Errno::AGAIN);
        assert_eq!(receive(libc::MSG_DONTWAIT).map(|received| received.len), Some(2));
    }
}
