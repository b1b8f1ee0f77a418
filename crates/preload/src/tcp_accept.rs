//! Accepts from a listening TCP socket without waiting, although the socket may be a blocking one
//! that other processes share.
//!
//! A poll beforehand does not suffice: another thread or process may take the connection in
//! between. So the socket is non-blocking for the duration of one `accept`. Accepts of this kind
//! exclude each other, within the process by a word and between processes by a record lock on the
//! socket. A process that shares the socket without a VMCI socket beside it may meet the flag.
//! [`was_disturbed`] tells it to try again.
//!
//! A process may end while the socket is non-blocking for its accept. The socket then has a mark,
//! by which the next process that has the lock recognises and removes the flag. The mark is the
//! number of a signal (`F_SETSIG`), which has no effect without `O_ASYNC`.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_lock, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{self, Timeout};
use rustix::thread::{futex, gettid, nanosleep};

use crate::sys::{at, is_thread, set_signal_number, signal_number};

/// The thread that accepts, by its ID, or 0. Threads that wait for their turn set [`WAITED`].
static TURN: AtomicU32 = AtomicU32::new(0);
const WAITED: u32 = 1 << 31;

/// The mark of a socket that is non-blocking for an accept: the last real-time signal.
const MARK: i32 = 64;

/// The turn of this thread to accept.
pub(crate) struct Turn {
    /// False in a signal handler of the thread that has the turn.
    mine: bool,
}

impl Turn {
    /// Waits for the turn.
    pub(crate) fn take() -> Self {
        const LONG: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let this = gettid().as_raw_nonzero().get().unsigned_abs();
        loop {
            let Err(seen) = TURN.compare_exchange(0, this, Acquire, Relaxed) else {
                return Self { mine: true };
            };
            let (holder, waited) = (seen & !WAITED, seen | WAITED);
            if holder == this {
                return Self { mine: false };
            }
            if seen != waited && TURN.compare_exchange(seen, waited, Relaxed, Relaxed).is_err() {
                continue;
            }
            let woken = futex::wait(&TURN, futex::Flags::PRIVATE, waited, Some(&LONG));
            if woken == Err(Errno::TIMEDOUT) && !is_thread(holder) {
                let _ = TURN.compare_exchange(waited, 0, Relaxed, Relaxed);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.mine && TURN.swap(0, Release) & WAITED != 0 {
            let _ = futex::wake(&TURN, futex::Flags::PRIVATE, i32::MAX.cast_unsigned());
        }
    }
}

/// Gives up the turn in a forked child: the thread that had it is the parent's.
pub(crate) extern "C" fn forked() {
    TURN.store(0, Relaxed);
}

/// Runs `work` while no accept of this process has a lock on a socket.
pub(crate) fn in_turn<T>(work: impl FnOnce() -> T) -> T {
    let _turn = Turn::take();
    work()
}

/// Locks a socket. Returns false where there are no locks (`ENOLCK`) or a security module denies
/// them (`EACCES`): there, accepts of different processes may disturb each other. Fails with
/// `EAGAIN` if a process keeps its lock for long, for example because it is stopped.
fn lock(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    // Together about 5 ms.
    const PAUSES: [i64; 9] = [0, 20, 40, 80, 160, 320, 640, 1280, 2560];
    for microseconds in PAUSES {
        if microseconds > 0 {
            let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: microseconds * 1000 });
        }
        match retry_on_intr(|| fcntl_lock(socket, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => return Ok(true),
            Err(Errno::AGAIN) => {}
            Err(_) => return Ok(false),
        }
    }
    Err(Errno::AGAIN)
}

/// Runs `work` while no process that uses this library changes the socket's flags. Fails with
/// `EAGAIN` if that is not possible for some milliseconds.
pub(crate) fn undisturbed<T>(fd: RawFd, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let socket = at(fd)?;
    let turn = Turn::take();
    if !turn.mine {
        return work();
    }
    let locked = lock(socket)?;
    if locked && signal_number(fd) == Ok(MARK) {
        // A process ended in the middle of its accept.
        set_non_blocking(socket, false)?;
        set_signal_number(fd, 0)?;
    }
    let result = work();
    if locked {
        let _ = fcntl_lock(socket, FlockOperation::Unlock);
    }
    result
}

fn set_non_blocking(socket: BorrowedFd<'_>, on: bool) -> Result<(), Errno> {
    let mut flags = fcntl_getfl(socket)?;
    flags.set(OFlags::NONBLOCK, on);
    fcntl_setfl(socket, flags)
}

/// Tells whether the program has made the socket non-blocking.
pub(crate) fn is_non_blocking(fd: RawFd) -> Result<bool, Errno> {
    if !fcntl_getfl(at(fd)?)?.contains(OFlags::NONBLOCK) {
        return Ok(false);
    }
    // The flag may be that of an accept in another process.
    match undisturbed(fd, || Ok(fcntl_getfl(at(fd)?)?.contains(OFlags::NONBLOCK))) {
        Err(Errno::AGAIN) => Ok(signal_number(fd)? != MARK),
        answer => answer,
    }
}

/// Accepts from a blocking socket; `EAGAIN` if no connection is waiting.
pub(crate) fn without_waiting<T>(fd: RawFd, accept: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let socket = at(fd)?;
    if retry_on_intr(|| poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&NOW)))? == 0 {
        return Err(Errno::AGAIN);
    }
    undisturbed(fd, || {
        let flags = fcntl_getfl(socket)?;
        if flags.contains(OFlags::NONBLOCK) {
            return accept();
        }
        let is_free = flags.bits() & libc::O_ASYNC.cast_unsigned() == 0 && signal_number(fd) == Ok(0);
        let marked = is_free && set_signal_number(fd, MARK).is_ok();
        set_non_blocking(socket, true)?;
        let accepted = accept();
        let _ = set_non_blocking(socket, false);
        if marked {
            let _ = set_signal_number(fd, 0);
        }
        accepted
    })
}

/// Tells whether an accept from a socket with this descriptor has a timeout (`SO_RCVTIMEO`).
pub(crate) fn has_timeout(fd: RawFd) -> bool {
    at(fd).and_then(|socket| sockopt::socket_timeout(socket, Timeout::Recv)).ok().flatten().is_some()
}

/// Tells whether an accept of a blocking socket has failed with `EAGAIN` only because another
/// process accepted at that moment.
pub(crate) fn was_disturbed(fd: RawFd) -> bool {
    is_non_blocking(fd) == Ok(false) && !has_timeout(fd)
}

#[cfg(test)]
mod tests;
