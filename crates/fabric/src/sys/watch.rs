//! The watch over writes that a front end may block.
//!
//! A front end shares its event descriptors, and their mode, with this process. It can fill one up
//! and make it blocking at any moment, and then a write to it waits for ever. No flag of the call
//! prevents that: Linux has none that eventfds know. Therefore each thread notes when it begins
//! such a write and when it has ended, and the *watcher*, a thread of its own, interrupts one that
//! lasts.
//!
//! The result is its own proof: a write to an eventfd looks at signals only while it waits, and it
//! waits only if the counter is full and the descriptor blocks. A thread that was merely preempted
//! never sees [`Blocked`].
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::io::Errno;

use super::epoll::Waker;
use super::lock::lock;

/// Interval between two looks of the watcher. A write that blocks is interrupted at the second look
/// that finds it, and at the third if the first signal came just before the write.
const INTERVAL: Duration = Duration::from_millis(5);
/// Looks without any write after which the watcher sleeps: one second.
const QUIET_LOOKS: u32 = 200;

/// The write waited: the eventfd was full, and no longer non-blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocked;

/// One thread's note about its writes, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Note {
    /// Counts the beginnings and the ends of writes: odd while one is under way.
    turn: AtomicU64,
    /// The turn that the watcher saw last.
    seen: AtomicU64,
    /// The thread's number.
    tid: i32,
}

/// The state that the watcher shares with the threads.
#[derive(Debug)]
struct Watch {
    notes: Mutex<Vec<Arc<Note>>>,
    /// The watcher sleeps, or is about to.
    asleep: AtomicBool,
    watcher: OnceLock<Thread>,
    /// Readable after a blocked write was reported.
    alarm: Waker,
}

static WATCH: OnceLock<Arc<Watch>> = OnceLock::new();

thread_local! {
    static NOTE: Option<(Arc<Note>, Arc<Watch>)> = enlist();
}

/// Starts the watcher, and returns what becomes readable after a write was blocked. Further calls
/// return the same.
///
/// # Errors
/// The kernel refuses the thread, the signal's handler or a descriptor.
pub fn start() -> io::Result<Waker> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = lock(&STARTING);
    if let Some(watch) = WATCH.get() {
        return Ok(watch.alarm.clone());
    }
    let watch = Arc::new(Watch {
        notes: Mutex::default(),
        asleep: AtomicBool::new(false),
        watcher: OnceLock::new(),
        alarm: Waker::new()?,
    });
    handle_signal()?;
    let own = Arc::clone(&watch);
    let watcher = thread::Builder::new().name("watch".to_owned()).spawn(move || own.run())?;
    // The watcher begins awake, and cannot be asleep before it has been awake for a while.
    let _ = watch.watcher.set(watcher.thread().clone());
    Ok(WATCH.get_or_init(|| watch).alarm.clone())
}

/// Signals an eventfd of a front end. A full one is signalled already, and any other error harms
/// only its owner.
///
/// Without [`start`] a write may wait for ever.
///
/// # Errors
/// The write was blocked, and the watcher has interrupted it. The caller marks the eventfd as
/// blocked, and then calls [`report`].
#[inline]
pub fn signal(event: BorrowedFd<'_>) -> Result<(), Blocked> {
    NOTE.with(|note| {
        let Some((note, watch)) = note else {
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
            return Ok(());
        };
        let turn = note.turn.load(Relaxed);
        // Either this thread sees that the watcher sleeps, or the watcher sees this turn before.
        note.turn.store(turn + 1, SeqCst);
        if watch.asleep.load(SeqCst) {
            watch.wake();
        }
        let written = rustix::io::write(event, &1_u64.to_ne_bytes());
        note.turn.store(turn + 2, Relaxed);
        if written == Err(Errno::INTR) { Err(Blocked) } else { Ok(()) }
    })
}

/// Makes the alarm that [`start`] returned readable.
#[cold]
pub fn report() {
    if let Some(watch) = WATCH.get() {
        watch.alarm.wake();
    }
}

/// Makes this thread known to the watcher. Returns `None` if there is no watcher.
fn enlist() -> Option<(Arc<Note>, Arc<Watch>)> {
    let watch = Arc::clone(WATCH.get()?);
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let note = Arc::new(Note { turn: AtomicU64::new(0), seen: AtomicU64::new(0), tid });
    lock(&watch.notes).push(Arc::clone(&note));
    Some((note, watch))
}

impl Watch {
    fn wake(&self) {
        if let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
    }

    fn run(&self) {
        let mut quiet = 0;
        loop {
            if quiet >= QUIET_LOOKS {
                self.asleep.store(true, SeqCst);
                // A write that began before its thread could see the mark is seen here.
                if !self.look() {
                    thread::park();
                }
                self.asleep.store(false, SeqCst);
                quiet = 0;
            }
            thread::sleep(INTERVAL);
            quiet = if self.look() { 0 } else { quiet + 1 };
        }
    }

    /// Interrupts each write that was under way at the last look already. Returns whether there was
    /// any write since then.
    fn look(&self) -> bool {
        let mut any = false;
        lock(&self.notes).retain(|note| {
            let turn = note.turn.load(SeqCst);
            let seen = note.seen.swap(turn, Relaxed);
            any |= turn != seen || turn % 2 == 1;
            if turn == seen && turn % 2 == 1 {
                interrupt(note.tid);
            }
            // A thread that has ended has dropped its own.
            Arc::strong_count(note) > 1
        });
        any
    }
}

/// The signal that interrupts a write. The runtime and libc use no real-time signal but the first
/// two.
pub(super) fn interrupt_signal() -> i32 {
    libc::SIGRTMIN() + 2
}

/// Installs a handler that does nothing. Without `SA_RESTART` it makes an interrupted call return.
fn handle_signal() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zeros is a valid `sigaction`: no flags, an empty mask and no handler.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: `action` is initialised and outlives the call. Its handler has the signature that an
    // action without SA_SIGINFO requires, and does nothing, which is safe at any point of a
    // thread. No other code of the process uses this signal.
    if unsafe { libc::sigaction(interrupt_signal(), &raw const action, std::ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sends the signal to a thread of this process.
fn interrupt(tid: i32) {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: the call accesses no memory of this process. It reaches only threads of this process,
    // since it names it; a thread that has ended meanwhile is an error without effect.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, interrupt_signal()) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::time::Instant;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn a_write_that_blocks_is_interrupted_and_others_are_not_disturbed() {
        let alarm = start().unwrap();
        // A thread that has written before the watcher was started is not watched.
        thread::spawn(move || block_and_go_on(&alarm)).join().unwrap();
    }

    fn block_and_go_on(alarm: &Waker) {
        // Full, and blocking.
        let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let begun = Instant::now();
        assert_eq!(signal(full.as_fd()), Err(Blocked));
        report();
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let mut readable = [0; 8];
        assert_eq!(rustix::io::read(alarm.as_fd(), &mut readable), Ok(8));

        let good = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        for _ in 0..1000 {
            assert_eq!(signal(good.as_fd()), Ok(()));
        }
        // Full, but not blocking: it is signalled already.
        let full = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert_eq!(signal(full.as_fd()), Ok(()));
    }

    #[test]
    fn a_watcher_that_sleeps_is_woken_by_the_next_write() {
        start().unwrap();
        let watch = WATCH.get().unwrap();
        let asleep = || watch.asleep.load(SeqCst);
        let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        // Tests beside this one may keep it awake, but not for ever.
        while !asleep() {
            thread::sleep(INTERVAL);
        }
        let blocked = thread::spawn(move || signal(full.as_fd()));
        assert_eq!(blocked.join().unwrap(), Err(Blocked));
    }
}
