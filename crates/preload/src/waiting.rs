//! Waits for descriptors as a blocking `accept` or `connect` does: a signal whose handler was
//! installed with `SA_RESTART` does not end the wait, any other handled signal does (`man 7
//! signal`).
//!
//! `poll` itself ends with `EINTR` for both kinds and does not tell which signal it was. If
//! handlers of both kinds are installed, the signals are therefore blocked during the wait, and a
//! signalfd wakes it up. The pending signals then tell whether the wait ends or goes on. A thread
//! that is cancelled during the wait closes the signalfd as it ends.
#![allow(unsafe_code, reason = "sets of signals, and poll as a point of cancellation")]

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::sys::OF_INSTRUCTIONS;
use crate::{real, sys};

/// Most descriptors of one wait.
pub(crate) const MOST: usize = 2;

/// The effect of a signal on a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signals {
    /// None.
    Ignored,
    /// The wait ends unless the handler was installed with `SA_RESTART`.
    Restart,
    /// The wait ends, as for a socket with a timeout.
    Interrupt,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// One of the descriptors has an event, or is not open.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal was handled.
    Interrupted,
    /// The wait is not possible.
    Failed(Errno),
}

/// Waits until one of at most [`MOST`] descriptors has one of these events.
pub(crate) fn wait(fds: &[RawFd], events: i16, until: Option<Instant>, signals: Signals) -> Woken {
    let mut all = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MOST];
    for (entry, fd) in all.iter_mut().zip(fds) {
        *entry = libc::pollfd { fd: *fd, events, revents: 0 };
    }
    wait_for(&mut all, until, signals)
}

/// Waits until one of the descriptors has one of its events, and stores the events.
pub(crate) fn wait_for(all: &mut [libc::pollfd; MOST], until: Option<Instant>, signals: Signals) -> Woken {
    let [first, second] = *all;
    let mut polled = [first, second, libc::pollfd { fd: -1, events: 0, revents: 0 }];
    let woken = wait_restarting(&mut polled, until, signals);
    let [first, second, _] = polled;
    *all = [first, second];
    woken
}

/// Ends the calling thread if it has been cancelled, as the polls of this file do. For loops of
/// callers that pause instead.
pub(crate) fn end_if_cancelled() {
    // SAFETY: takes nothing. As with the polls of this file, callers have no destructors.
    unsafe { real::pthread_testcancel() };
}

fn wait_restarting(polled: &mut [libc::pollfd; MOST + 1], until: Option<Instant>, signals: Signals) -> Woken {
    loop {
        let handlers = if signals == Signals::Restart { Handlers::installed() } else { Handlers::NONE };
        let woken = if handlers.restarting != 0 && handlers.interrupting != 0 {
            wait_without_signals(polled, until, handlers)
        } else {
            Some(wait_once(polled, until))
        };
        match woken {
            Some(Woken::Interrupted) => match signals {
                Signals::Interrupt => return Woken::Interrupted,
                // Handlers may have been installed meanwhile.
                Signals::Restart if (handlers.interrupting | Handlers::installed().interrupting) != 0 => {
                    return Woken::Interrupted;
                }
                Signals::Ignored | Signals::Restart => {}
            },
            Some(woken) => return woken,
            None => {}
        }
    }
}

/// Waits once. Every handled signal ends this wait.
fn wait_once(polled: &mut [libc::pollfd; MOST + 1], until: Option<Instant>) -> Woken {
    let timeout = until.map_or(-1, |until| {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that the wait does not end early and spin.
        c_int::try_from((left + Duration::from_micros(999)).as_millis()).unwrap_or(c_int::MAX)
    });
    // SAFETY: the array is the caller's, and the number is its length.
    match unsafe { real::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) } {
        0 => Woken::TimedOut,
        1.. => Woken::Ready,
        _ => match sys::errno() {
            Errno::INTR => Woken::Interrupted,
            error => Woken::Failed(error),
        },
    }
}

/// Waits with the handled signals blocked; `None` if there is no reason to stop yet.
fn wait_without_signals(
    polled: &mut [libc::pollfd; MOST + 1],
    until: Option<Instant>,
    handlers: Handlers,
) -> Option<Woken> {
    let before = block(handlers.restarting | handlers.interrupting);
    let watched = (handlers.restarting | handlers.interrupting) & !bits(&before);
    let watch = signal_descriptor(watched);
    if let (Some(entry), Some(fd)) = (polled.last_mut(), watch) {
        *entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    }
    // Without a signalfd the wait is short, so that no signal is blocked for long.
    let short = Instant::now() + Duration::from_millis(10);
    let woken = match watch {
        Some(_) => wait_once(polled, until),
        None => wait_once(polled, Some(until.map_or(short, |until| until.min(short)))),
    };
    if let Some(watch) = watch {
        close_at_end(None);
        let _ = sys::close(watch);
    }
    if let Some(entry) = polled.last_mut() {
        *entry = libc::pollfd { fd: -1, events: 0, revents: 0 };
    }
    let pending = pending() & watched;
    // The handlers run here.
    unblock(&before);
    let ready = polled.iter().any(|entry| entry.revents != 0);
    match woken {
        _ if pending & handlers.interrupting != 0 && !ready => Some(Woken::Interrupted),
        _ if pending != 0 && !ready => None,
        // Without a signalfd, or a signal without a handler.
        Woken::TimedOut if until.is_none_or(|until| Instant::now() < until) => None,
        Woken::Interrupted => None,
        // Another thread has handled the signal.
        Woken::Ready if !ready => None,
        woken => Some(woken),
    }
}

/// Number of times that the program has changed handlers, from 1 on.
static CHANGES: AtomicU32 = AtomicU32::new(1);
/// Number of the change after which the words below were stored. 0 while they are being stored.
static KNOWN: AtomicU32 = AtomicU32::new(0);
static RESTARTING: AtomicU64 = AtomicU64::new(0);
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);
/// True while a thread stores them.
static STORING: AtomicBool = AtomicBool::new(false);

/// Records that the program has changed a handler.
pub(crate) fn handlers_changed() {
    // 0 is not used: four thousand million changes do not happen.
    CHANGES.fetch_add(1, SeqCst);
}

/// The signals with a handler, as bits. Bit 0 is signal 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Handlers {
    /// Those with `SA_RESTART`.
    restarting: u64,
    /// The others.
    interrupting: u64,
}

impl Handlers {
    const NONE: Self = Self { restarting: 0, interrupting: 0 };

    /// The present handlers. The kernel is asked only after a change.
    fn installed() -> Self {
        let change = CHANGES.load(SeqCst);
        if KNOWN.load(SeqCst) == change {
            let [restarting, interrupting] = [&RESTARTING, &INTERRUPTING].map(|bits| bits.load(SeqCst));
            if KNOWN.load(SeqCst) == change {
                return Self { restarting, interrupting };
            }
        }
        let all = Self::ask();
        if !STORING.swap(true, SeqCst) {
            if CHANGES.load(SeqCst) == change {
                KNOWN.store(0, SeqCst);
                RESTARTING.store(all.restarting, SeqCst);
                INTERRUPTING.store(all.interrupting, SeqCst);
                KNOWN.store(change, SeqCst);
            }
            STORING.store(false, SeqCst);
        }
        all
    }

    fn ask() -> Self {
        let mut all = Self::NONE;
        for signal in 1..=64 {
            let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: only asks; the structure is this frame's.
            if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
                continue;
            }
            // SAFETY: zeroed, then filled by the call.
            let action = unsafe { action.assume_init() };
            if action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let bit = 1 << (signal - 1);
            if action.sa_flags & libc::SA_RESTART == 0 {
                all.interrupting |= bit;
            } else {
                all.restarting |= bit;
            }
        }
        for signal in OF_INSTRUCTIONS {
            all.interrupting &= !(1 << (signal - 1));
            all.restarting &= !(1 << (signal - 1));
        }
        all
    }
}

fn empty() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is this frame's.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: emptied by the call.
    unsafe { set.assume_init() }
}

fn set(bits: u64) -> libc::sigset_t {
    let mut set = empty();
    for signal in (1..=64).filter(|signal| bits & (1 << (signal - 1)) != 0) {
        // SAFETY: the set is this frame's.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

fn bits(set: &libc::sigset_t) -> u64 {
    let has = |signal| {
        // SAFETY: a valid set.
        unsafe { libc::sigismember(std::ptr::from_ref(set), signal) == 1 }
    };
    (1..=64).filter(|signal| has(*signal)).fold(0, |bits, signal| bits | 1 << (signal - 1))
}

/// Blocks these signals for the calling thread. Returns the set that was blocked before.
fn block(bits: u64) -> libc::sigset_t {
    let (more, mut before) = (set(bits), empty());
    // SAFETY: both sets are this frame's.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const more, &raw mut before) };
    before
}

fn unblock(before: &libc::sigset_t) {
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::from_ref(before), std::ptr::null_mut()) };
}

fn pending() -> u64 {
    let mut set = empty();
    // SAFETY: the set is this frame's.
    unsafe { libc::sigpending(&raw mut set) };
    bits(&set)
}

/// A descriptor that is readable while one of these signals is pending. It is a number without an
/// owner, because a thread may be cancelled while it waits, and frames with destructors must not be
/// unwound then.
fn signal_descriptor(bits: u64) -> Option<RawFd> {
    let set = set(bits);
    // SAFETY: the set is this frame's.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return None;
    }
    close_at_end(Some(fd));
    Some(fd)
}

/// Key of the descriptor that a thread closes when it ends (`man 3 pthread_key_create`).
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// Makes the key. Called when the library is loaded.
pub(crate) fn load() {
    unsafe extern "C" fn close(value: *mut c_void) {
        if let Ok(number) = RawFd::try_from(value.addr()) {
            let _ = sys::close(number - 1);
        }
    }
    let mut key = 0;
    // SAFETY: the number is this frame's, and the library is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(close)) } == 0 {
        let _ = KEY.set(key);
    }
}

/// Lets this thread close a descriptor when it ends, or nothing any more.
fn close_at_end(fd: Option<RawFd>) {
    let Some(key) = KEY.get() else { return };
    // Not a pointer: the number plus one, since a null pointer is nothing.
    let value = std::ptr::without_provenance::<c_void>(fd.map_or(0, |fd| fd as usize + 1));
    // SAFETY: the key exists, and any value is valid.
    let _ = unsafe { libc::pthread_setspecific(*key, value) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn signals_are_bits() {
        let some = 1 << (libc::SIGCHLD - 1) | 1 << (libc::SIGTERM - 1) | 1 << 63;
        assert_eq!(bits(&set(some)), some);
        assert_eq!(bits(&empty()), 0);
    }

    #[test]
    fn a_wait_ends_with_its_time_or_an_event() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let fds = [one.as_raw_fd()];
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(wait(&fds, libc::POLLIN, soon, Signals::Restart), Woken::TimedOut);
        drop(other);
        assert_eq!(wait(&fds, libc::POLLIN, None, Signals::Restart), Woken::Ready);
        assert_eq!(wait(&[-1, 1 << 20], libc::POLLIN, None, Signals::Ignored), Woken::Ready, "not open");
    }
}
