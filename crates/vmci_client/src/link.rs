//! The sockets of an attached end: bells, signals, and threads that sleep until a signal comes.
//!
//! A signal is one byte on the control connection and does not say which ring has changed. A thread
//! that took it for itself would rob another thread that waits for the other ring. Therefore one
//! thread of a handle polls the sockets for all, and every wake-up is one for all: each counts the
//! epoch up. A thread reads the epoch, arms its wait word, looks at its ring, and sleeps only if
//! the epoch is still the same.
//!
//! Waits of the program's own poll the control connection, too. The rules for signals are: while a
//! thread polls for all, only that thread takes them; whoever takes them wakes the other waits that
//! have begun; and if one of these cannot be woken, the signals stay where it sees them. The thread
//! that polls waits for new bytes ([`Edges`]), and seldom reads signals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use taut_queue_pair::Hostile;
use taut_queue_pair::message::GIVE_UP;

use crate::edges::{Edges, Seen};
use crate::time::{timeout, timespec};
use crate::waiting::Interest;
use crate::wakers::{OwnWait, OwnWaits, Wakers};

/// Number of wake-ups after which signals are read. One or two signals belong to each, and patrols
/// of the fabric add one in ten seconds at most. The fabric holds back signals of a connection that
/// has 128 unread ones.
const MOST_UNREAD: u32 = 32;
/// Of the calls that do not wait and find nothing, the first and each one of this many look at the
/// sockets.
const VAIN_LOOKS: u32 = 16;

/// The control connection and the stream's own socket.
#[derive(Debug)]
pub(crate) struct Link {
    control: OwnedFd,
    stream: OwnedFd,
    /// True when the control connection has ended.
    ended: AtomicBool,
    /// When the stream's socket first said that the peer has ended its direction.
    hung_up: OnceLock<Instant>,
    /// Why the words of the channel cannot be believed any more.
    fault: OnceLock<Hostile>,
    /// Number of calls that did not wait and found nothing.
    vain: AtomicU32,
    sleepers: Mutex<Sleepers>,
    woken: Condvar,
    wakers: Wakers,
    /// Epoll instance on which one thread waits for all. `None` if no descriptor was free.
    edges: OnceLock<Option<Edges>>,
    /// Number of wake-ups since signals were last read.
    unread: AtomicU32,
}

#[derive(Debug, Default)]
struct Sleepers {
    /// Number of wake-ups.
    epoch: u64,
    /// True while one thread polls the sockets.
    polling: bool,
    /// Waits of the program's own.
    own: OwnWaits,
}

/// The end of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Something may have changed.
    Changed,
    /// The time is over.
    TimedOut,
    /// A signal of the operating system was handled.
    Interrupted,
    /// The sockets cannot be polled.
    Failed(Errno),
}

impl Woken {
    /// The error of a call that has found nothing after this.
    pub(crate) fn check(self) -> io::Result<()> {
        match self {
            Self::Changed => Ok(()),
            Self::TimedOut => Err(io::ErrorKind::TimedOut.into()),
            Self::Interrupted => Err(io::ErrorKind::Interrupted.into()),
            Self::Failed(errno) => Err(errno.into()),
        }
    }
}

impl Link {
    /// Longest sleep when the peer's end is known, since a later end of the whole connection is no
    /// new event of the socket.
    pub(crate) const AFTER_HANGUP: Duration = Duration::from_millis(100);

    pub(crate) fn new(control: OwnedFd, stream: OwnedFd) -> Self {
        Self {
            control,
            stream,
            ended: AtomicBool::new(false),
            hung_up: OnceLock::new(),
            fault: OnceLock::new(),
            vain: AtomicU32::new(0),
            sleepers: Mutex::default(),
            woken: Condvar::new(),
            wakers: Wakers::default(),
            edges: OnceLock::new(),
            unread: AtomicU32::new(0),
        }
    }

    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    pub(crate) fn stream(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns true when the control connection has ended, as far as is known.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Tells whether the channel is lost, as far as is known: another connection may have it.
    pub(crate) fn is_lost(&self) -> bool {
        self.has_ended() || self.fault.get().is_some()
    }

    /// When the stream's socket first said that the peer has ended its direction.
    pub(crate) fn hung_up(&self) -> Option<Instant> {
        self.hung_up.get().copied()
    }

    /// Ends the use of the channel, in both directions, because its words cannot be believed. The
    /// fabric is told, and resets the connection; threads that sleep are woken.
    pub(crate) fn fail(&self, fault: Hostile) -> io::Error {
        if self.fault.set(fault).is_ok() {
            let _ = send(&self.control, &[GIVE_UP], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            // A socket that has ended already needs no shutdown.
            let _ = shutdown(&self.control, Shutdown::Both);
            self.wake_all();
        }
        io::Error::new(io::ErrorKind::InvalidData, *self.fault.get_or_init(|| fault))
    }

    /// Returns an error if the words of the channel cannot be believed any more.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.fault.get() {
            Some(fault) => Err(self.fail(*fault)),
            None => Ok(()),
        }
    }

    /// Asks the fabric to look at the channel. If the socket is full, it was asked already.
    pub(crate) fn bell(&self) {
        loop {
            match send(&self.control, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) | Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => return self.ended.store(true, Ordering::Release),
            }
        }
    }

    /// Tells whether the peer still receives: nothing is sent, but the kernel checks the
    /// connection first.
    pub(crate) fn peer_receives(&self) -> bool {
        let sent = send(&self.stream, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        matches!(sent, Ok(_) | Err(Errno::AGAIN | Errno::INTR))
    }

    /// Number of wake-ups, for [`Self::sleep`].
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Sleeps until there is a wake-up after `epoch`.
    ///
    /// A thread that sleeps while another one polls is not interrupted by the operating system's
    /// signals.
    pub(crate) fn sleep(&self, epoch: u64, until: Option<Instant>) -> Woken {
        let mut sleepers = self.lock();
        loop {
            if sleepers.epoch != epoch {
                return Woken::Changed;
            }
            if !sleepers.polling {
                break;
            }
            let Some(until) = until else {
                sleepers = self.woken.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Woken::TimedOut;
            }
            (sleepers, _) = self.woken.wait_timeout(sleepers, left).unwrap_or_else(PoisonError::into_inner);
        }
        sleepers.polling = true;
        drop(sleepers);
        let woken = self.poll(until);
        let mut sleepers = self.lock();
        sleepers.polling = false;
        self.wake(sleepers);
        woken
    }

    /// Wakes all sleepers, and all waits of the program's own.
    pub(crate) fn wake_all(&self) {
        let sleepers = self.lock();
        sleepers.own.others(None).for_each(|wait| self.wakers.wake(wait));
        self.wake(sleepers);
    }

    /// Begins a wait of the program's own. It is known to other threads before the fabric is asked
    /// for signals.
    pub(crate) fn begin_own(&self, interest: Interest) {
        let wait = OwnWait::from(interest);
        let mut sleepers = self.lock();
        sleepers.own.are_shared |= sleepers.polling;
        sleepers.own.begin(wait);
        if sleepers.own.are_shared && !self.wakers.make(wait, self.control()) {
            // The wait polls the control connection itself, and each unread signal ends it.
            self.unread.store(MOST_UNREAD, Ordering::Relaxed);
        }
    }

    /// Descriptor that a wait of the program's own polls for signals.
    pub(crate) fn polled_by(&self, interest: Interest) -> BorrowedFd<'_> {
        self.wakers.polled(interest.into()).unwrap_or(self.control())
    }

    /// Ends a wait of the program's own that found something ready.
    pub(crate) fn cancel_own(&self, interest: Interest) {
        self.lock().own.end(interest.into());
        self.wakers.clear(interest.into());
    }

    /// Ends a wait of the program's own. Takes all signals and wakes all others.
    pub(crate) fn end_own(&self, interest: Interest) {
        let wait = OwnWait::from(interest);
        self.look_at_stream();
        let mut sleepers = self.lock();
        sleepers.own.end(wait);
        self.wakers.clear(wait);
        if !sleepers.polling {
            self.drain(&mut sleepers);
        }
        self.wake(sleepers);
    }

    /// Counts a call that does not wait and found nothing. At the first and at each 16th of them,
    /// looks whether the sockets have ended, without taking a signal. Returns whether it has
    /// looked.
    pub(crate) fn look_at_sockets_sometimes(&self) -> bool {
        if !self.vain.fetch_add(1, Ordering::Relaxed).is_multiple_of(VAIN_LOOKS) {
            return false;
        }
        // With these events only, so that signals do not count.
        let mut polled = [PollFd::new(&self.control, PollFlags::RDHUP)];
        if poll(&mut polled, Some(&timeout(Instant::now()))).is_ok_and(|count| count > 0) {
            self.ended.store(true, Ordering::Release);
        }
        self.look_at_stream();
        true
    }

    /// Waits once for an event of the sockets, for all threads. Reads the signals if there may be
    /// many.
    fn poll(&self, until: Option<Instant>) -> Woken {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let limit = self.hung_up().map(|_| Self::AFTER_HANGUP);
        let time = [left, limit].into_iter().flatten().min();
        let edges = self.edges.get_or_init(|| Edges::new(self.control(), self.stream()).ok());
        let seen = match edges {
            Some(edges) => edges.wait(time),
            None => self.poll_sockets(time),
        };
        let seen = match seen {
            Ok(seen) if seen == Seen::default() => {
                let is_over = until.is_some_and(|until| Instant::now() >= until);
                return if is_over { Woken::TimedOut } else { Woken::Changed };
            }
            Ok(seen) => seen,
            Err(Errno::INTR) => return Woken::Interrupted,
            Err(errno) => return Woken::Failed(errno),
        };
        if seen.end {
            self.ended.store(true, Ordering::Release);
            // The program's own waits may have forgotten their edge of the end.
            self.lock().own.others(None).for_each(|wait| self.wakers.wake(wait));
        }
        if seen.hangup {
            self.hung_up.get_or_init(Instant::now);
        }
        let must_read = edges.is_none() || self.unread.fetch_add(1, Ordering::Relaxed) >= MOST_UNREAD;
        if seen.signals && must_read && !self.drain(&mut self.lock()) {
            thread::yield_now();
        }
        Woken::Changed
    }

    /// Polls the sockets when there is no epoll instance. The caller must read the signals, or the
    /// next poll returns at once.
    fn poll_sockets(&self, time: Option<Duration>) -> Result<Seen, Errno> {
        let mut polled =
            [PollFd::new(&self.control, PollFlags::IN), PollFd::new(&self.stream, PollFlags::RDHUP)];
        // Known already, so it would end every wait at once.
        let count = if self.hung_up().is_some() { 1 } else { 2 };
        poll(&mut polled[..count], time.map(timespec).as_ref())?;
        let [signals, hangup] = polled.each_ref().map(|entry| !entry.revents().is_empty());
        Ok(Seen { signals, end: false, hangup })
    }

    /// Notes whether the peer has ended its direction.
    fn look_at_stream(&self) {
        if self.hung_up.get().is_some() {
            return;
        }
        let mut polled = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        if poll(&mut polled, Some(&timeout(Instant::now()))).is_ok_and(|count| count > 0) {
            self.hung_up.get_or_init(Instant::now);
        }
    }

    /// Takes all signals that have come, and wakes the waits that would miss them. Returns false if
    /// it leaves the signals to a wait that cannot be woken otherwise.
    fn drain(&self, sleepers: &mut Sleepers) -> bool {
        if sleepers.own.others(None).any(|wait| self.wakers.polled(wait).is_none()) {
            sleepers.own.are_shared = true;
            return false;
        }
        if self.receive_signals() {
            sleepers.own.others(None).for_each(|wait| self.wakers.wake(wait));
        }
        true
    }

    /// Receives all signals, and tells whether there were any, or the connection has ended. Their
    /// number and values have no meaning.
    fn receive_signals(&self) -> bool {
        self.unread.store(0, Ordering::Relaxed);
        let (mut signals, mut has_any) = ([0; 64], false);
        loop {
            match recv(&self.control, &mut signals, RecvFlags::DONTWAIT) {
                // An end that has come behind the signals causes no further edge.
                Ok((_, count)) if count > 0 => has_any = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return has_any,
                Ok(_) | Err(_) => {
                    self.ended.store(true, Ordering::Release);
                    return true;
                }
            }
        }
    }

    fn wake(&self, mut sleepers: MutexGuard<'_, Sleepers>) {
        sleepers.epoch += 1;
        drop(sleepers);
        self.woken.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
