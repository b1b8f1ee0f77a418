//! Accepts from a listening TCP socket without waiting, although the socket may be a blocking one
//! that other processes share.
//!
//! A poll beforehand does not suffice: another thread or process may take the connection in
//! between. So the socket is non-blocking for the duration of one `accept`. Accepts of this kind
//! exclude each other, within the process by a word and between processes by a record lock on the
//! socket. A process that shares the socket without a VMCI socket beside it may run into that
//! moment. [`was_disturbed`] tells it to try again.

use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_lock, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{self, Timeout};
use rustix::process::getpid;
use rustix::thread::{gettid, sched_yield};

use crate::sys::at;

/// The thread that accepts: process ID and thread ID, or 0.
static TURN: AtomicU64 = AtomicU64::new(0);

/// The turn of this thread to accept.
struct Turn {
    /// False in a signal handler of the thread that has the turn.
    mine: bool,
}

impl Turn {
    fn take() -> Self {
        let process = u64::from(getpid().as_raw_nonzero().get().unsigned_abs()) << 32;
        let this = process | u64::from(gettid().as_raw_nonzero().get().unsigned_abs());
        loop {
            match TURN.compare_exchange(0, this, Acquire, Relaxed) {
                Ok(_) => return Self { mine: true },
                Err(holder) if holder == this => return Self { mine: false },
                // A thread of the parent had the turn when this process was forked.
                Err(holder) if holder >> 32 != process >> 32 => {
                    let _ = TURN.compare_exchange(holder, 0, Relaxed, Relaxed);
                }
                Err(_) => sched_yield(),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.mine {
            TURN.store(0, Release);
        }
    }
}

/// Runs `work` while no process that uses this library changes the socket's flags.
fn undisturbed<T>(fd: RawFd, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let socket = at(fd)?;
    let _turn = Turn::take();
    // Without locks (`ENOLCK`), accepts of different processes may disturb each other.
    let locked = retry_on_intr(|| fcntl_lock(socket, FlockOperation::LockExclusive)).is_ok();
    let result = work();
    if locked {
        let _ = fcntl_lock(socket, FlockOperation::Unlock);
    }
    result
}

/// Tells whether the program has made the socket non-blocking.
pub(crate) fn is_non_blocking(fd: RawFd) -> Result<bool, Errno> {
    if !fcntl_getfl(at(fd)?)?.contains(OFlags::NONBLOCK) {
        return Ok(false);
    }
    // The flag may be that of an accept in another process.
    undisturbed(fd, || Ok(fcntl_getfl(at(fd)?)?.contains(OFlags::NONBLOCK)))
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
        fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
        let accepted = accept();
        let _ = fcntl_setfl(socket, flags);
        accepted
    })
}

/// Tells whether an accept of a blocking socket has failed with `EAGAIN` only because another
/// process accepted at that moment.
pub(crate) fn was_disturbed(fd: RawFd) -> bool {
    let has_timeout =
        || at(fd).and_then(|socket| sockopt::socket_timeout(socket, Timeout::Recv)).ok().flatten().is_some();
    is_non_blocking(fd) == Ok(false) && !has_timeout()
}
