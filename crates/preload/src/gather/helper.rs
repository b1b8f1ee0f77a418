//! The thread that sends what has waited long enough, while the program computes or sleeps.
//!
//! It starts with the first connection whose writes may be gathered, and not by a write: a signal
//! handler may write, but must not start threads. It has all signals blocked.

use std::ffi::c_void;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;
use rustix::thread::futex;
use rustix::time::Timespec;

use super::buffer::SHORT;
use super::pool::{at_place, filled, now};
use crate::say::complain;
use crate::sys::start_thread;

/// True while this process has the thread.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Changes when the thread is woken up.
static BELL: AtomicU32 = AtomicU32::new(0);
/// Time at which the thread looks at the buffers next.
static NEXT: AtomicU64 = AtomicU64::new(u64::MAX);
/// True once the main thread has ended without the process.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Longest time between looks while the program itself sends what it has gathered.
const LONG: u64 = 1_000_000;

/// Number of looks at empty buffers before the thread sleeps until it is woken up. A look is
/// cheaper for the program than a system call that wakes the thread.
const EMPTY_LOOKS: u32 = 5;

/// Tells whether this process has the thread.
pub(super) fn runs() -> bool {
    RUNS.load(Relaxed)
}

/// Starts the thread, unless it runs. Returns false if that is not possible.
pub(super) fn start() -> bool {
    if RUNS.swap(true, SeqCst) {
        return true;
    }
    if let Err(error) = start_thread(run) {
        RUNS.store(false, SeqCst);
        complain!(
            "small writes are not gathered: the thread that sends them cannot be started: {error}\n\
             hint: raise the limit of threads (`ulimit -u`), or unset TAUT_VMCI_GATHER"
        );
        return false;
    }
    true
}

/// Records in a forked child that the thread is the parent's.
pub(super) fn forked() {
    RUNS.store(false, Relaxed);
    LEFT.store(false, Relaxed);
    NEXT.store(u64::MAX, Relaxed);
}

/// Makes the thread look at the buffers at this time, or soon after.
pub(super) fn expect(until: u64) {
    if until.saturating_add(LONG) < NEXT.load(SeqCst) {
        ring();
    }
}

fn ring() {
    BELL.fetch_add(1, SeqCst);
    let _ = futex::wake(&BELL, futex::Flags::PRIVATE, 1);
}

/// Records that the main thread ends without the process.
pub(super) fn main_thread_leaves() {
    LEFT.store(true, SeqCst);
    ring();
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    /// Interval of looks for other threads after the main thread has ended.
    const ALONE: u64 = 50_000_000;
    // Otherwise sleeps take 50 µs longer.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let (mut empty_looks, mut pace) = (0, 0);
    loop {
        // From here on a write rings. Those before are seen below.
        NEXT.store(u64::MAX, SeqCst);
        let bell = BELL.load(SeqCst);
        let now = now();
        let (mut next, was_late) = look(now);
        // In a stream the program sends each full buffer itself.
        pace = if was_late || next == u64::MAX { 0 } else { (2 * pace).clamp(SHORT, LONG) };
        next = next.max(now + pace);
        if next == u64::MAX && empty_looks < EMPTY_LOOKS {
            (next, empty_looks) = (now + SHORT, empty_looks + 1);
        } else if next != u64::MAX {
            empty_looks = 0;
        } else if LEFT.load(SeqCst) {
            if is_alone() {
                // The C library ends the process with its last thread.
                return std::ptr::null_mut();
            }
            next = now + ALONE;
        }
        NEXT.store(next, SeqCst);
        sleep(now, next, bell);
        if BELL.load(SeqCst) != bell {
            empty_looks = 0;
        }
    }
}

/// Sends what has waited long enough. Returns the time at which more will have, and whether there
/// was any.
fn look(now: u64) -> (u64, bool) {
    let (mut next, mut was_late) = (u64::MAX, false);
    for place in filled() {
        let Some(mut buffer) = at_place(place) else { continue };
        if !buffer.is_empty() && buffer.until <= now {
            buffer.flush_behind(&|| now);
            was_late = true;
        }
        if !buffer.is_empty() {
            next = next.min(buffer.until);
        }
    }
    (next, was_late)
}

fn sleep(now: u64, until: u64, bell: u32) {
    let left = until.saturating_sub(now);
    let left = Timespec {
        tv_sec: (left / 1_000_000_000).cast_signed(),
        tv_nsec: (left % 1_000_000_000).cast_signed(),
    };
    let timeout = (until != u64::MAX).then_some(&left);
    let _ = futex::wait(&BELL, futex::Flags::PRIVATE, bell, timeout);
}

/// Tells whether the process has no other thread. A main thread that has ended still counts.
fn is_alone() -> bool {
    let mut bytes = [0; 1024];
    let Ok(file) = open("/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let Ok(count) = read(&file, &mut bytes) else { return false };
    let text = bytes.get(..count).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    // The name may contain anything, also a parenthesis.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    // Fields 3 and 20 of `man 5 proc_pid_stat`.
    fields.next() == Some("Z") && fields.nth(16) == Some("2")
}
