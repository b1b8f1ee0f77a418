//! Small writes that are gathered.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use libc::{iovec, size_t, ssize_t};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};

use super::super::{fail, guard};
use crate::gather::{self, Step};
use crate::real;
use crate::sys::{Pieces, at, raise_sigpipe};
use crate::waiting::{Signals, Woken, wait};

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

/// Writes the bytes that `count` structures describe through the gathered bytes of a connection, as
/// [`gathered`] does.
///
/// # Safety
/// As for `writev`.
pub(super) unsafe fn gathered_parts(
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

/// Writes one piece through the gathered bytes of a connection, as [`gathered_parts`] does.
///
/// # Safety
/// As for `write`.
pub(super) unsafe fn gathered_bytes(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> Option<ssize_t> {
    let part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
    // SAFETY: as the caller promises.
    unsafe { gathered_parts(fd, &raw const part, 1, flags, false) }
}

/// Sends the gathered bytes of a connection, before the program adds others in a way that does not
/// gather. If that fails or would wait, returns the result of the program's call.
pub(crate) fn cleared(fd: c_int, flags: c_int) -> Option<ssize_t> {
    if gather::concerns(fd) { gathered(fd, Pieces::NONE, flags, true) } else { None }
}
