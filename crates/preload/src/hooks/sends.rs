//! Sends that differ on a VMCI socket: small ones if they are gathered, with an address, with
//! urgent data, with descriptors, and to a peer that has gone. All others go to the kernel alone.
//! Those of datagram sockets are in `datagrams`.
//!
//! Kernels before 6.7 send no `SIGPIPE` for `AF_VSOCK`; there this library does.

use std::ffi::{c_int, c_uint, c_void};
use std::time::Instant;

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};

use super::datagrams::{self, NOBODY};
use super::{fail, guard};
use crate::datagram::find;
use crate::gather::{self, Step};
use crate::lookup::connection;
use crate::say::complain;
use crate::state::TABLE;
use crate::sys::{Pieces, at, errno, kernel_signals, option, raise_sigpipe};
use crate::waiting::{Signals, Woken, wait};
use crate::{real, rights, rings};

fn is_vmci(fd: c_int) -> bool {
    TABLE.is_held(fd) && guard(false, || connection(fd).is_some())
}

/// Refuses urgent data. `AF_VSOCK` has none, and that of a Unix socket would not reach the guest.
fn is_refused(fd: c_int, flags: c_int) -> bool {
    if flags & libc::MSG_OOB == 0 || !is_vmci(fd) {
        return false;
    }
    guard((), || {
        complain!(
            "urgent data (MSG_OOB) refused (EOPNOTSUPP): a VMCI socket does not have it\n\
             hint: if the program requires it, remove this peer from the map"
        );
    });
    true
}

/// Sends `SIGPIPE` for a send that failed with `EPIPE`, unless the kernel has done so.
fn signalled(fd: c_int, flags: c_int, sent: ssize_t) -> ssize_t {
    if sent < 0 {
        gather::refused(fd);
    }
    if sent < 0
        && TABLE.may_be_connected(fd)
        && errno() == Errno::PIPE
        && flags & libc::MSG_NOSIGNAL == 0
        && !kernel_signals()
    {
        if option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_VSOCK) {
            raise_sigpipe();
        }
        return fail(Errno::PIPE);
    }
    sent
}

/// Writes through the gathered bytes of a connection, if [`gather::concerns`] it. `None` if the
/// program's own call goes to the kernel. Waits as that call would.
fn gathered(fd: c_int, pieces: Pieces<'_>, flags: c_int, alone: bool) -> Option<ssize_t> {
    const USUAL: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
    // SAFETY: takes nothing. This function has no destructors.
    unsafe { real::pthread_testcancel() };
    // Not in `guard`: a handler of the fault may leave it by a jump.
    gather::touch(fd, &pieces);
    let (more, alone) = (flags & libc::MSG_MORE != 0, alone || flags & !USUAL != 0);
    let (mut done, mut limit, mut has_waited, mut connection) = (0, None, false, None);
    let end = |done: usize, error: Errno| {
        if done > 0 {
            return Some(done.cast_signed());
        }
        if error == Errno::PIPE && flags & libc::MSG_NOSIGNAL == 0 {
            raise_sigpipe();
        }
        Some(fail(error))
    };
    loop {
        match guard(Step::Kernel, || gather::write(fd, &pieces, done, more, alone, &mut connection)) {
            // The rest is left to the program.
            Step::Kernel if done > 0 => return Some(done.cast_signed()),
            Step::Kernel => return None,
            Step::Taken => return Some(pieces.len().cast_signed()),
            Step::Full(taken) => {
                if has_waited && taken == done {
                    gather::pause();
                }
                done = taken;
            }
            Step::Failed(error) => return end(done, error),
        }
        let Some(until) = *limit.get_or_insert_with(|| guard(None, || time_limit(fd, flags))) else {
            return end(done, Errno::AGAIN);
        };
        let signals = if until.is_some() { Signals::Interrupt } else { Signals::Restart };
        match wait(&[fd], libc::POLLOUT, until, signals) {
            Woken::Ready => has_waited = true,
            Woken::TimedOut => return end(done, Errno::AGAIN),
            Woken::Interrupted => return end(done, Errno::INTR),
            Woken::Failed(error) => return end(done, error),
        }
    }
}

/// Time until which a write waits, if that is limited (`SO_SNDTIMEO`); `None` if it does not wait.
#[allow(clippy::option_option, reason = "waits, and for how long")]
fn time_limit(fd: c_int, flags: c_int) -> Option<Option<Instant>> {
    let socket = at(fd).ok()?;
    if flags & libc::MSG_DONTWAIT != 0 || fcntl_getfl(socket).ok()?.contains(OFlags::NONBLOCK) {
        return None;
    }
    let limit = sockopt::socket_timeout(socket, Timeout::Send).ok().flatten();
    Some(limit.map(|limit| Instant::now() + limit))
}

/// The same for the bytes that `count` structures describe.
///
/// # Safety
/// As for `writev`.
unsafe fn gathered_parts(
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
    alone: bool,
) -> Option<ssize_t> {
    if !gather::concerns(fd) {
        return None;
    }
    // SAFETY: as the caller promises.
    let pieces = unsafe { Pieces::new(parts, count) };
    // The kernel refuses others, after the bytes before them.
    gathered(fd, pieces.unwrap_or(Pieces::NONE), flags, alone || pieces.is_none())
}

/// The same for one piece.
///
/// # Safety
/// As for `write`.
unsafe fn gathered_bytes(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> Option<ssize_t> {
    let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    // SAFETY: as the caller promises.
    unsafe { gathered_parts(fd, &raw const part, 1, flags, false) }
}

/// Sends through the rings of a connection, if it has some: the bytes that `count` structures
/// describe. `None` if the program's own call goes to the kernel.
///
/// # Safety
/// As for `writev`.
unsafe fn to_rings(fd: c_int, parts: *const iovec, count: usize, flags: c_int) -> Option<ssize_t> {
    /// Flags that change nothing else for a stream.
    const USUAL: c_int =
        libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR | libc::MSG_CONFIRM;
    if !rings::concerns(fd) {
        return None;
    }
    if flags & !USUAL != 0 {
        guard((), || rings::leave(fd));
        return None;
    }
    // SAFETY: takes nothing. This function has no destructors.
    unsafe { real::pthread_testcancel() };
    // SAFETY: as the caller promises.
    let Some(pieces) = (unsafe { Pieces::new(parts, count) }) else {
        return Some(fail(if count > libc::UIO_MAXIOV as usize { Errno::INVAL } else { Errno::FAULT }));
    };
    Some(match rings::send(fd, &pieces, flags)? {
        Ok(count) => count.cast_signed(),
        Err(error) => {
            if error == Errno::PIPE && flags & libc::MSG_NOSIGNAL == 0 {
                raise_sigpipe();
            }
            fail(error)
        }
    })
}

/// The same for one piece.
///
/// # Safety
/// As for `write`.
unsafe fn bytes_to_rings(fd: c_int, bytes: *const c_void, len: size_t, flags: c_int) -> Option<ssize_t> {
    let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    // SAFETY: as the caller promises.
    unsafe { to_rings(fd, &raw const part, 1, flags) }
}

/// Sends the gathered bytes of a connection, before the program adds others in a way that does not
/// gather. If that fails or would wait, returns the result of the program's call.
pub(super) fn cleared(fd: c_int, flags: c_int) -> Option<ssize_t> {
    if gather::concerns(fd) { gathered(fd, Pieces::NONE, flags, true) } else { None }
}

/// `write(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    if let Some(slot) = find(fd) {
        let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (&raw const part, 1), 0, NOBODY) };
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { bytes_to_rings(fd, bytes, len, 0) } {
        return result;
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { gathered_bytes(fd, bytes, len, 0) } {
        return result;
    }
    // SAFETY: as the caller promises.
    signalled(fd, 0, unsafe { real::write(fd, bytes, len) })
}

/// `writev(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if let Some(slot) = find(fd) {
        let Ok(count) = usize::try_from(count) else { return fail(Errno::INVAL) };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (parts, count), 0, NOBODY) };
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { to_rings(fd, parts, count as usize, 0) } {
        return result;
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { gathered_parts(fd, parts, count as usize, 0, false) } {
        return result;
    }
    // SAFETY: as the caller promises.
    signalled(fd, 0, unsafe { real::writev(fd, parts, count) })
}

/// `send(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn send(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if let Some(slot) = find(fd) {
        let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (&raw const part, 1), flags, NOBODY) };
    }
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { bytes_to_rings(fd, bytes, len, flags) } {
        return result;
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { gathered_bytes(fd, bytes, len, flags) } {
        return result;
    }
    // SAFETY: as the caller promises.
    signalled(fd, flags, unsafe { real::send(fd, bytes, len, flags) })
}

/// `sendto(2)`: removes the address, which TCP ignores and VMCI sockets refuse.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    if let Some(slot) = find(fd) {
        let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (&raw const part, 1), flags, (to, to_len)) };
    }
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { bytes_to_rings(fd, bytes, len, flags) } {
        return result;
    }
    // SAFETY: as the caller promises.
    if let Some(result) = unsafe { gathered_bytes(fd, bytes, len, flags) } {
        return result;
    }
    let (to, to_len) = if !to.is_null() && is_vmci(fd) { (std::ptr::null(), 0) } else { (to, to_len) };
    // SAFETY: as the caller promises; a null address is valid.
    signalled(fd, flags, unsafe { real::sendto(fd, bytes, len, flags, to, to_len) })
}

/// `sendmsg(2)`: as [`sendto`]. The VMCI port of a listener that is passed to another process
/// becomes free for that.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if let Some(slot) = find(fd)
        && !message.is_null()
    {
        // SAFETY: as the caller promises.
        let message = unsafe { message.read() };
        let to = (message.msg_name.cast_const().cast(), message.msg_namelen);
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send(fd, slot, (message.msg_iov, message.msg_iovlen), flags, to) };
    }
    if is_refused(fd, flags) {
        return fail(Errno::OPNOTSUPP);
    }
    if !message.is_null() && is_vmci(fd) {
        // SAFETY: as the caller promises.
        let mut copy = unsafe { message.read() };
        copy.msg_name = std::ptr::null_mut();
        copy.msg_namelen = 0;
        let (parts, count, alone) = (copy.msg_iov, copy.msg_iovlen, !copy.msg_control.is_null());
        if alone && copy.msg_controllen > 0 {
            guard((), || rings::leave(fd));
        }
        // SAFETY: as the caller promises.
        if let Some(result) = unsafe { to_rings(fd, parts, count, flags) } {
            return result;
        }
        // SAFETY: as the caller promises.
        if let Some(result) = unsafe { gathered_parts(fd, parts, count, flags, alone) } {
            return result;
        }
        // SAFETY: as the caller promises; a null address is valid.
        return signalled(fd, flags, unsafe { real::sendmsg(fd, &raw const copy, flags) });
    }
    // SAFETY: as the caller promises.
    let send = || unsafe { real::sendmsg(fd, message, flags) };
    if message.is_null() {
        return send();
    }
    // SAFETY: as the caller promises.
    let (control, len) = unsafe { ((*message).msg_control, (*message).msg_controllen) };
    if control.is_null() {
        return send();
    }
    // SAFETY: as the caller promises; bytes have no alignment and may have any value.
    let control = unsafe { std::slice::from_raw_parts(control.cast::<u8>(), len) };
    let passes = guard(false, || rights::pass(control));
    let sent = send();
    if sent < 0 && passes {
        let error = errno();
        guard((), || rights::keep(control));
        return fail(error);
    }
    sent
}

/// Sends messages through the rings of a connection, one after the other.
///
/// # Safety
/// As for sendmmsg.
unsafe fn messages_to_rings(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> Option<c_int> {
    const MOST: c_uint = 1024;
    if !rings::concerns(fd) || messages.is_null() {
        return None;
    }
    let mut done = 0;
    while done < count.min(MOST) && rings::concerns(fd) {
        // SAFETY: as the caller promises.
        let one = unsafe { messages.add(done as usize) };
        // SAFETY: as the caller promises.
        let sent = unsafe { sendmsg(fd, &raw const (*one).msg_hdr, flags) };
        if sent < 0 {
            return Some(if done > 0 { done.cast_signed() } else { -1 });
        }
        // SAFETY: as the caller promises.
        unsafe { (*one).msg_len = sent as c_uint };
        done += 1;
    }
    // Otherwise it has left the rings.
    (done > 0 || count == 0).then_some(done.cast_signed())
}

/// `sendmmsg(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if find(fd).is_some() {
        // SAFETY: as the caller promises.
        return unsafe { datagrams::send_messages(fd, messages, count, flags) };
    }
    // SAFETY: as the caller promises.
    if let Some(count) = unsafe { messages_to_rings(fd, messages, count, flags) } {
        return count;
    }
    if let Some(result) = cleared(fd, flags) {
        return result as c_int;
    }
    // SAFETY: as the caller promises.
    unsafe { real::sendmmsg(fd, messages, count, flags) }
}
