//! Gathers small writes to VMCI connections, on request (`TAUT_VMCI_GATHER=1`).
//!
//! The kernel makes a packet of each write to an `AF_VSOCK` socket. Nagle's rule for this library:
//! the first small writes on an idle connection go to the kernel at once. Further ones wait in a
//! buffer of the library until it is full, until the program looks for an answer or does anything
//! else with the connection, or for 200 µs. Record 0044 in `docs/adr/` has the reasons.
//!
//! - `buffer`: the bytes of one connection, and the decision on each write, without system calls.
//! - `lock`, `pool`: the buffers of the process.
//! - `closing`: closed and shut down connections, whose bytes still wait.
//! - `sharing`: what happens before others may get a connection, and before the process ends.
//! - `helper`: the thread that sends what has waited long enough.
//!
//! Order is kept by three rules. A write goes to the kernel only when the buffer is empty. Only
//! connections that this process alone has, at one number, have a buffer. Everything that may share
//! a connection sends the bytes first.

mod buffer;
mod closing;
mod helper;
mod lock;
mod pool;
mod sharing;

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

pub(crate) use buffer::Step;
use buffer::{CORKED, Rules, SHORT, SMALL};
pub(crate) use closing::{closes, makes_way, shuts_down};
use pool::{Used, now};
pub(crate) use sharing::{ends, executes, share, share_all};
use sharing::{forking, has_forked, set_all_shared};

use crate::say::tell;
use crate::state::{TABLE, owns, recognise_child, when_forked_unseen};
use crate::sys::{Pieces, around_fork, at, at_end_of_thread, first_handler};

/// True if the user has requested it.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// Number of threads that wait in a `select`, for which descriptors the library does not know.
static SELECTING: AtomicU32 = AtomicU32::new(0);

/// Reads the user's choice. Called when the library is loaded.
pub(crate) fn load() {
    if std::env::var_os("TAUT_VMCI_GATHER").is_some_and(|value| value == "1") {
        ENABLED.store(true, Relaxed);
        around_fork(forking, has_forked, forked);
        when_forked_unseen(forked);
        at_end_of_thread(main_thread_ends);
    }
}

/// Tells whether small writes are gathered. The fast path of all functions below. They may use the
/// buffers only after this, which empties them in a child that was made without the C library's
/// fork: they have the parent's bytes, and locks of its threads.
pub(crate) fn is_on() -> bool {
    let enabled = ENABLED.load(Relaxed);
    if enabled {
        recognise_child();
    }
    enabled
}

/// Lets the writes to a connection be gathered, which no other process has yet.
pub(crate) fn begin(fd: RawFd) {
    if is_on() && owns() && helper::start() {
        TABLE.set_private(fd);
        tell!("descriptor {fd}: small writes are gathered");
    }
}

/// Tells whether a write to a descriptor concerns this module.
pub(crate) fn concerns(fd: RawFd) -> bool {
    is_on() && (TABLE.is_private(fd) || pool::has_bytes() && TABLE.may_be_connected(fd))
}

/// Reads a byte of each page of a write that may be gathered. A handler of the fault may end the
/// program, which needs the lock of the buffer.
pub(crate) fn touch(fd: RawFd, pieces: &Pieces<'_>) {
    if pieces.len() <= SMALL && TABLE.is_private(fd) {
        pieces.touch(usize::MAX);
    }
}

/// Decides on a write of which `done` bytes are taken already. `more` is true for `MSG_MORE`;
/// `alone` for a write that must not wait for others.
///
/// `connection` is `None` before the first step of a write, and is the same for all others. If
/// another file has got the number while the write waited, the write ends.
pub(crate) fn write(
    fd: RawFd,
    pieces: &Pieces<'_>,
    done: usize,
    more: bool,
    alone: bool,
    connection: &mut Option<u64>,
) -> Step {
    let now_there = TABLE.cookie(fd).filter(|cookie| at(fd).and_then(sockopt::socket_cookie) == Ok(*cookie));
    if connection.is_some() && now_there != *connection {
        return Step::Failed(Errno::BADF);
    }
    *connection = now_there;
    let Some(cookie) = now_there else { return Step::Kernel };
    let Some(mut buffer) = of(fd, cookie) else { return Step::Kernel };
    let corked = TABLE.has_cork(fd);
    let is_asked = TABLE.is_waited_for(fd) || SELECTING.load(SeqCst) != 0;
    let rules = Rules {
        gathers: TABLE.is_private(fd)
            && owns()
            && helper::runs()
            && !alone
            && (corked || more || !TABLE.has_no_delay(fd) && !is_asked),
        holds: corked || more,
        time: if corked { CORKED } else { SHORT },
    };
    if TABLE.was_answered(fd) {
        buffer.answered();
    }
    // The buffer's own number may be another file in a child of vfork.
    let step = buffer.write(pieces, done, rules, &now, &mut |bytes| pool::give(fd, bytes));
    buffer.settle();
    if !buffer.is_empty() {
        let until = buffer.until;
        drop(buffer);
        helper::expect(until);
    }
    step
}

/// The buffer of a connection; `None` if another connection's bytes stay in it.
fn of(fd: RawFd, cookie: u64) -> Option<Used> {
    // Bytes from before it was duplicated may be at the other number.
    if TABLE.is_duplicated(fd) {
        let others = pool::filled().filter_map(pool::at_place);
        if let Some(buffer) =
            others.into_iter().find(|other| other.cookie == cookie && !other.is_empty() && other.is_here())
        {
            return Some(buffer);
        }
    }
    let mut buffer = pool::of(fd)?;
    if buffer.cookie != cookie {
        if !owns() {
            return None;
        }
        if !buffer.is_empty() {
            buffer.flush_behind(&now);
        }
        if !buffer.is_empty() {
            return None;
        }
        buffer.begin(fd, cookie);
    }
    Some(buffer)
}

/// Sends the bytes of a buffer, as far as the kernel takes them now.
fn flush_one(buffer: &mut Used) {
    buffer.flush_behind(&now);
    if !buffer.is_empty() {
        helper::expect(buffer.until);
    }
}

/// Sends the bytes of a connection, as far as the kernel takes them.
pub(crate) fn flush(fd: RawFd) {
    if is_on()
        && pool::may_have(fd)
        && let Some(mut buffer) = pool::of(fd)
    {
        flush_one(&mut buffer);
    }
}

/// Sends the bytes of all connections without `TCP_CORK`, before the program waits.
pub(crate) fn flush_all() {
    if !is_on() || !pool::has_bytes() {
        return;
    }
    for place in pool::filled() {
        if let Some(mut buffer) = pool::at_place(place)
            && !buffer.corked
        {
            flush_one(&mut buffer);
        }
    }
}

/// Prepares a receive, which may wait. If nothing is there yet, sends the bytes of all connections.
pub(crate) fn receives(fd: RawFd) {
    TABLE.waits(fd, true);
    if pool::has_bytes() && !is_readable(fd) {
        flush_all();
    }
}

/// Ends [`receives`]. If the peer has answered, the next write goes at once.
pub(crate) fn received(fd: RawFd, count: isize) {
    TABLE.waits(fd, false);
    if count > 0 {
        TABLE.set_answered(fd);
    }
}

/// Lets the next write to a connection go at once, since the kernel has refused the last one.
pub(crate) fn refused(fd: RawFd) {
    if is_on() {
        TABLE.set_answered(fd);
    }
}

fn is_readable(fd: RawFd) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Ok(file) = at(fd) else { return true };
    poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::IN)], Some(&NOW)).is_ok_and(|count| count > 0)
}

/// Pauses a writer whose socket has room, although the kernel takes nothing, for example since it
/// has no memory.
pub(crate) fn pause() {
    pool::sleep(Duration::from_millis(1));
}

/// Counts a thread that waits in a `select`.
pub(crate) fn selects(begins: bool) {
    if begins {
        SELECTING.fetch_add(1, SeqCst);
    } else {
        // The thread may have been forked meanwhile, by a signal handler.
        let _ = SELECTING.fetch_update(SeqCst, Relaxed, |count| count.checked_sub(1));
    }
}

/// Prepares that the program installs a signal handler. From here on signals are blocked while a
/// thread uses a buffer.
pub(crate) fn handles_signals() {
    if first_handler() && is_on() {
        pool::pass_all();
    }
}

/// Runs when the main thread ends without the process, which then ends with the last thread of the
/// program.
extern "C" fn main_thread_ends(_: *mut c_void) {
    if is_on() && owns() {
        flush_all();
        helper::main_thread_leaves();
    }
}

/// Runs in a child with memory of its own. Its only thread is the main one.
extern "C" fn forked() {
    set_all_shared();
    SELECTING.store(0, SeqCst);
    TABLE.nobody_waits();
    helper::forked();
    pool::forget_all();
    at_end_of_thread(main_thread_ends);
}

#[cfg(test)]
mod tests;
