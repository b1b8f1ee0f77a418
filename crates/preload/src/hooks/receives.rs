//! Receives that differ on a VMCI socket: with an address, with `MSG_TRUNC`, with `MSG_PEEK` and
//! `MSG_WAITALL` together, with descriptors. All others go to the kernel alone. Before a receive of
//! any kind waits, gathered bytes are sent. `datagrams` receives from datagram sockets.

use std::ffi::{c_int, c_uint, c_void};
use std::time::{Duration, Instant};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::thread::{NanosleepRelativeResult, nanosleep};

use super::{datagrams, fail, guard};
use crate::datagram::find;
use crate::lookup::connection;
use crate::rings::{self, Target};
use crate::state::{TABLE, map};
use crate::sys::{Room, at};
use crate::{gather, real, rights};

const PEEK_ALL: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;
/// No room for the source of a datagram.
const NOWHERE: (*mut sockaddr, *mut socklen_t) = (std::ptr::null_mut(), std::ptr::null_mut());

fn is_vmci(fd: c_int) -> bool {
    TABLE.is_held(fd) && guard(false, || connection(fd).is_some())
}

fn is_special(fd: c_int, flags: c_int) -> bool {
    (flags & libc::MSG_TRUNC != 0 || flags & PEEK_ALL == PEEK_ALL) && is_vmci(fd)
}

/// Receives through the rings of a connection, if it has some: into the room that `count`
/// structures describe. `None` if the program's own call goes to the kernel.
///
/// # Safety
/// As for `readv`.
unsafe fn from_rings(fd: c_int, parts: *const iovec, count: usize, flags: c_int) -> Option<ssize_t> {
    const OTHERS: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;
    if !rings::concerns(fd) || flags & OTHERS != 0 {
        return None;
    }
    // SAFETY: takes nothing. This function has no destructors.
    unsafe { real::pthread_testcancel() };
    // SAFETY: as the caller promises.
    let Some(room) = (unsafe { Room::new(parts, count) }) else {
        return Some(fail(if count > libc::UIO_MAXIOV as usize { Errno::INVAL } else { Errno::FAULT }));
    };
    let mut target =
        if flags & libc::MSG_TRUNC == 0 { Target::Room(room) } else { Target::Nowhere(room.len()) };
    Some(match rings::receive(fd, &mut target, flags)? {
        Ok(count) => count.cast_signed(),
        Err(error) => fail(error),
    })
}

/// The same for one piece.
///
/// # Safety
/// As for `read`.
unsafe fn bytes_from_rings(fd: c_int, bytes: *mut c_void, len: size_t, flags: c_int) -> Option<ssize_t> {
    let part = iovec { iov_base: bytes, iov_len: len };
    // SAFETY: as the caller promises.
    unsafe { from_rings(fd, &raw const part, 1, flags) }
}

/// Calls a function that receives. If nothing is there yet, gathered bytes are sent before.
fn receiving(fd: c_int, receive: impl FnOnce() -> ssize_t) -> ssize_t {
    if !gather::is_on() {
        return receive();
    }
    guard((), || gather::receives(fd));
    let count = receive();
    gather::received(fd, count);
    count
}

/// `read(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t {
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        return receiving(fd, || unsafe { datagrams::receive_into(fd, bytes, len, 0, NOWHERE) });
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { bytes_from_rings(fd, bytes, len, 0) } {
        return count;
    }
    // SAFETY: as the caller promises.
    receiving(fd, || unsafe { real::read(fd, bytes, len) })
}

/// `read(2)` of programs that check the sizes of buffers (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    size: size_t,
) -> ssize_t {
    if size < len {
        std::process::abort();
    }
    // SAFETY: as the caller promises.
    unsafe { read(fd, bytes, len) }
}

/// `readv(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if find(fd).is_some() {
        let Ok(count) = usize::try_from(count) else { return fail(Errno::INVAL) };
        // SAFETY: as the caller promises.
        let receive = || unsafe { datagrams::receive(fd, (parts, count), 0) };
        return receiving(fd, || receive().map_or(-1, |received| received.len));
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { from_rings(fd, parts, count as usize, 0) } {
        return count;
    }
    // SAFETY: as the caller promises.
    receiving(fd, || unsafe { real::readv(fd, parts, count) })
}

/// `recv(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn recv(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        return receiving(fd, || unsafe { datagrams::receive_into(fd, bytes, len, flags, NOWHERE) });
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { bytes_from_rings(fd, bytes, len, flags) } {
        return count;
    }
    // SAFETY: as the caller promises.
    let receive = |flags| unsafe { real::recv(fd, bytes, len, flags) };
    receiving(fd, || if is_special(fd, flags) { special(fd, len, flags, &receive) } else { receive(flags) })
}

/// `recv(2)` of programs that check the sizes of buffers (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
) -> ssize_t {
    if size < len {
        std::process::abort();
    }
    // SAFETY: as the caller promises.
    unsafe { recv(fd, bytes, len, flags) }
}

/// `recvfrom(2)`: stores no address, as TCP.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if find(fd).is_some() {
        let from = (from, from_len);
        // SAFETY: as the caller promises.
        return receiving(fd, || unsafe { datagrams::receive_into(fd, bytes, len, flags, from) });
    }
    if !rings::concerns(fd) && (from.is_null() || !is_vmci(fd)) {
        // SAFETY: as the caller promises.
        let receive = |flags| unsafe { real::recvfrom(fd, bytes, len, flags, from, from_len) };
        let receive =
            || if is_special(fd, flags) { special(fd, len, flags, &receive) } else { receive(flags) };
        return receiving(fd, receive);
    }
    // SAFETY: as the caller promises.
    let received = unsafe { recv(fd, bytes, len, flags) };
    if received >= 0 && !from.is_null() && !from_len.is_null() {
        // SAFETY: as the caller promises.
        unsafe { from_len.write_unaligned(0) };
    }
    received
}

/// `recvfrom(2)` of programs that check the sizes of buffers (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    size: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if size < len {
        std::process::abort();
    }
    // SAFETY: as the caller promises.
    unsafe { recvfrom(fd, bytes, len, flags, from, from_len) }
}

/// `recvmsg(2)`: as [`recvfrom`]. Descriptors that it receives are examined.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the caller promises.
    let receive = |flags| unsafe { real::recvmsg(fd, message, flags) };
    if message.is_null() {
        return receive(flags);
    }
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        return receiving(fd, || unsafe { datagrams::receive_message(fd, message, flags) });
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { message_from_rings(fd, message, flags) } {
        return count;
    }
    // SAFETY: as the caller promises.
    receiving(fd, || unsafe { receive_message(fd, message, flags, &receive) })
}

/// Receives a message through the rings of a connection, if it has some.
///
/// # Safety
/// As for recvmsg.
unsafe fn message_from_rings(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    if !rings::concerns(fd) {
        return None;
    }
    // SAFETY: as the caller promises.
    let (parts, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
    // SAFETY: as the caller promises.
    let received = unsafe { from_rings(fd, parts, count, flags) }?;
    if received >= 0 {
        // SAFETY: as the caller promises.
        unsafe { ((*message).msg_namelen, (*message).msg_controllen, (*message).msg_flags) = (0, 0, 0) };
    }
    Some(received)
}

/// Receives messages through the rings of a connection, one after the other.
///
/// # Safety
/// As for recvmmsg.
unsafe fn messages_from_rings(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *const timespec,
) -> Option<c_int> {
    const MOST: c_uint = 1024;
    if !rings::concerns(fd) || messages.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let time = (!timeout.is_null()).then(|| unsafe { timeout.read() });
    let time =
        time.map(|time| Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32));
    let until = time.map(|time| Instant::now() + time);
    let (mut done, mut flags_now) = (0, flags & !libc::MSG_WAITFORONE);
    while done < count.min(MOST) {
        // SAFETY: as the caller promises.
        let one = unsafe { messages.add(done as usize) };
        // SAFETY: as the caller promises.
        let Some(received) = (unsafe { message_from_rings(fd, &raw mut (*one).msg_hdr, flags_now) }) else {
            // It has left the rings.
            return (done > 0).then_some(done.cast_signed());
        };
        if received < 0 {
            return Some(if done > 0 { done.cast_signed() } else { -1 });
        }
        // SAFETY: as the caller promises.
        unsafe { (*one).msg_len = received as c_uint };
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags_now |= libc::MSG_DONTWAIT;
        }
        // The end of the stream ends the call.
        if received == 0 || until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
    }
    Some(done.cast_signed())
}

/// Receives a message by the program's own call.
///
/// # Safety
/// As for recvmsg.
unsafe fn receive_message(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    receive: &dyn Fn(c_int) -> ssize_t,
) -> ssize_t {
    if is_vmci(fd) {
        let received = if is_special(fd, flags) {
            // SAFETY: as the caller promises.
            special(fd, unsafe { room(message) }, flags, receive)
        } else {
            receive(flags)
        };
        if received >= 0 {
            // SAFETY: as the caller promises.
            unsafe { (*message).msg_namelen = 0 };
        }
        return received;
    }
    let received = receive(flags);
    if received >= 0 && map().is_some() {
        // SAFETY: as the caller promises; the kernel has stored the length of the control data.
        let (control, len) = unsafe { ((*message).msg_control, (*message).msg_controllen) };
        if !control.is_null() && len > 0 {
            // SAFETY: as the caller promises; the kernel has filled these bytes.
            let control = unsafe { std::slice::from_raw_parts(control.cast::<u8>(), len) };
            guard((), || rights::receive(control));
        }
    }
    received
}

/// `recvmmsg(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        let receive = || unsafe { datagrams::receive_messages(fd, messages, count, flags, timeout) };
        return receiving(fd, || receive() as ssize_t) as c_int;
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { messages_from_rings(fd, messages, count, flags, timeout) } {
        return count;
    }
    // SAFETY: as the caller promises.
    receiving(fd, || unsafe { real::recvmmsg(fd, messages, count, flags, timeout) } as ssize_t) as c_int
}

/// Number of bytes for which a message has room.
///
/// # Safety
/// As for the message of recvmsg.
unsafe fn room(message: *const msghdr) -> usize {
    // SAFETY: as the caller promises.
    let (parts, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
    // The kernel refuses more parts than that (`UIO_MAXIOV`).
    let parts = (0..count.min(1024)).map(|part| {
        // SAFETY: as the caller promises.
        unsafe { (*parts.add(part)).iov_len }
    });
    parts.fold(0, usize::saturating_add)
}

/// Receives up to `len` bytes of a VMCI connection as TCP does. `receive` is the program's own call
/// with other flags.
fn special(fd: c_int, len: usize, flags: c_int, receive: &dyn Fn(c_int) -> ssize_t) -> ssize_t {
    if flags & libc::MSG_TRUNC != 0 { discard(fd, len, flags) } else { peek_all(fd, len, flags, receive) }
}

/// Discards bytes, or with `MSG_PEEK` counts the first ones (`MSG_TRUNC`, `man 7 tcp`).
fn discard(fd: c_int, len: usize, flags: c_int) -> ssize_t {
    let mut bytes = [0u8; 4096];
    let mut flags = flags & !libc::MSG_TRUNC;
    let mut total = 0;
    loop {
        let now = bytes.len().min(len - total);
        // SAFETY: the buffer is this frame's and has at least this length.
        let count = unsafe { real::recv(fd, bytes.as_mut_ptr().cast(), now, flags) };
        if count <= 0 {
            return if total > 0 { total.cast_signed() } else { count };
        }
        total += count as usize;
        if total >= len || flags & libc::MSG_PEEK != 0 {
            return total.cast_signed();
        }
        if flags & libc::MSG_WAITALL == 0 {
            flags |= libc::MSG_DONTWAIT;
        }
    }
}

/// Peeks until `len` bytes are there (`MSG_PEEK` with `MSG_WAITALL`), the peer has shut down its
/// half, a signal was handled, or the time is over.
fn peek_all(fd: c_int, len: usize, flags: c_int, receive: &dyn Fn(c_int) -> ssize_t) -> ssize_t {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    const SHORT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let Ok(socket) = at(fd) else { return receive(flags) };
    let started = Instant::now();
    let timeout: Option<Duration> = sockopt::socket_timeout(socket, Timeout::Recv).ok().flatten();
    let waits = flags & libc::MSG_DONTWAIT == 0
        && fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    loop {
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        let ended = poll(&mut polled, Some(&NOW)).is_ok_and(|count| count > 0);
        let count = receive(flags & !libc::MSG_WAITALL);
        let is_over = timeout.is_some_and(|timeout| started.elapsed() >= timeout);
        if count <= 0 || count as usize >= len || ended || !waits || is_over {
            return count;
        }
        if !matches!(nanosleep(&SHORT), NanosleepRelativeResult::Ok) {
            return count;
        }
    }
}
