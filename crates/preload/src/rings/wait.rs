//! How threads wait for a ring, and wake each other.
//!
//! The fabric signals by a byte on the control connection, which does not say which ring has
//! changed. All threads that wait poll that connection. A thread that is about to sleep acts on the
//! signals that were seen: it announces all waits anew. It goes on only if no ring that a thread
//! waits for is ready: what happens afterwards is signalled by another byte. If a ring is ready and
//! its thread has not come yet, the other one pauses instead.
//!
//! A thread that polls the connection itself then reads the bytes, which would end its next poll at
//! once. An epoll instance reports each arrival once, even if earlier bytes are unread. A thread
//! that waits for one therefore seldom reads signals. Another thread, or another process, that
//! polls the connection then wakes once, reads them and sleeps again.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::SeqCst;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::nanosleep;
use taut_queue_pair::Direction;

use super::control::MOST_SIGNALS;
use super::events::{directions, events_of};
use super::input::Input;
use super::output::Output;
use super::record::{Pair, Stop};
use super::reports::would_be_due;
use super::words::flag;
use crate::state::TABLE;
use crate::sys::at;
use crate::table::{Edge, Watch};

/// Longest sleep in milliseconds when the peer's end is known, since a later end of the whole
/// connection is no new event of the socket.
pub(super) const AFTER_HANGUP: u64 = 100;
/// Most times in a row that a thread that waits for an epoll instance leaves signals unread. Since
/// version 6.8, Linux answers each read that empties a socket with a packet, which costs a guest as
/// much as a request. Each time, at most two signals come, one for each ring; patrols of the fabric
/// add one in ten seconds at most. The fabric holds back signals of a connection that has 128
/// unread ones.
const MOST_UNREAD: u32 = MOST_SIGNALS as u32 / 2 - 1;
/// Most reads that take all signals.
const MOST_READS: usize = 16;
/// Calls that do not wait look at the sockets each time that this many of them found nothing.
const VAIN_LOOKS: u32 = 16;

/// Result of [`Pair::arm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    /// The ring is ready.
    Ready,
    /// The fabric signals when the ring is ready.
    Asleep,
    /// The other ring is ready, and the thread that waits for it has not run yet. Signals must stay
    /// unread until it has.
    Busy,
}

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A thread that polls the sockets itself. It is counted.
    Thread,
    /// A thread that waits for an epoll instance. It looks at the rings whenever a socket has an
    /// event, and reports what others of the same instance have missed.
    Epoll,
    /// A thread that polls the sockets itself and waits for neither ring.
    Bystander,
}

/// What a thread polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Polled {
    pub(super) control: RawFd,
    pub(super) stream: RawFd,
    /// Events of the stream's own socket.
    pub(super) events: i16,
    /// True if the wait takes at most [`AFTER_HANGUP`].
    pub(super) is_short: bool,
}

/// Pauses a thread that waits for another one.
pub(super) fn pause() {
    let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 100_000 });
}

/// Pauses in a row of a thread whose turn comes after that of another one.
#[derive(Debug, Default)]
pub(super) struct Pauses(u32);

impl Pauses {
    /// Number of short pauses: some 20 ms.
    const SHORT: u32 = 200;
    /// A pause after these.
    const LONG: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

    /// Pauses. The other thread may have been cancelled or killed, and then it stays counted as one
    /// that waits. A thread that was paused many times therefore looks 100 times a second only.
    ///
    /// The count of the other thread stays: it may just not have got a processor, and would miss
    /// its signal if this thread took that.
    pub(super) fn pause(&mut self) {
        if self.0 < Self::SHORT {
            self.0 += 1;
            pause();
        } else {
            let _ = nanosleep(&Self::LONG);
        }
    }

    /// Ends the row.
    pub(super) fn end(&mut self) {
        self.0 = 0;
    }
}

impl Pair {
    /// Counts a thread that waits for a ring. Ended by [`stop_waiting`].
    pub(super) fn start_waiting(&self, direction: Direction) {
        self.waiting(direction).fetch_add(1, SeqCst);
    }

    /// Ends what [`Self::start_waiting`] began.
    pub(super) fn stop_waiting(&self, direction: Direction) {
        // A connection that has got the channel meanwhile has a new count.
        let _ = self.waiting(direction).fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    }

    pub(super) fn is_ready(&self, direction: Direction) -> Result<bool, Stop> {
        Ok(match direction {
            Direction::In => Input::lock(self)?.is_ready(),
            Direction::Out => Output::lock(self)?.is_ready(),
        })
    }

    /// Has the fabric signal when a ring is ready, unless it is.
    pub(super) fn arm(&self, direction: Direction, waiter: Waiter) -> Result<Armed, Stop> {
        if self.signalled().load(SeqCst) != 0
            && let Some(armed) = self.drain(Some(direction), waiter)?
        {
            return Ok(armed);
        }
        let is_ready = match direction {
            Direction::In => {
                let mut input = Input::lock(self)?;
                if !self.is_announced(direction) {
                    input.announce();
                }
                input.is_ready()
            }
            Direction::Out => {
                let mut output = Output::lock(self)?;
                if !self.is_announced(direction) {
                    output.announce();
                }
                output.is_ready()
            }
        };
        Ok(if is_ready { Armed::Ready } else { Armed::Asleep })
    }

    /// Acts on the signals that were seen, unless a ring that a thread waits for is ready. Reads
    /// them, unless the thread may leave them.
    fn drain(&self, wanted: Option<Direction>, waiter: Waiter) -> Result<Option<Armed>, Stop> {
        let (mut input, mut output) = (Input::lock(self)?, Output::lock(self)?);
        if self.signalled().load(SeqCst) == 0 {
            return Ok(None);
        }
        input.check();
        output.check();
        if self.is_alone(waiter) {
            // In this order: who finds no signal may rely on what is announced, and a thread that
            // sees a later signal records it after this one.
            for direction in [Direction::In, Direction::Out] {
                self.set_announced(direction, false);
            }
            self.signalled().store(0, SeqCst);
            // Before the look, since what happens afterwards is signalled anew.
            match waiter {
                Waiter::Thread | Waiter::Bystander => drop(self.take_signals(MOST_SIGNALS)),
                Waiter::Epoll if self.unread_signals().fetch_add(1, SeqCst) >= MOST_UNREAD => {
                    // An end that has come behind the signals causes no further edge.
                    let _ = (0..MOST_READS).find(|_| self.take_signals(MOST_SIGNALS) == 0);
                }
                Waiter::Epoll => {}
            }
            return Ok(None);
        }
        let count = self.count_signals();
        let mut ready = [false; 2];
        for (place, direction) in [Direction::In, Direction::Out].into_iter().enumerate() {
            let by_thread = Some(direction) == wanted || self.waiting(direction).load(SeqCst) > 0;
            let watch = if by_thread || waiter == Waiter::Epoll { None } else { self.watch(direction) };
            self.set_announced(direction, false);
            if !by_thread && watch.is_none() {
                continue;
            }
            let is_ready = match direction {
                Direction::In => {
                    input.announce();
                    input.is_ready()
                }
                Direction::Out => {
                    output.announce();
                    output.is_ready()
                }
            };
            // Events that the watch has reported already do not count: no thread waits for them.
            let events = events_of(direction);
            let is_awaited = watch.is_none_or(|watch| would_be_due(self.fd, watch, self, events));
            if let Some(ready) = ready.get_mut(place) {
                *ready = is_ready && is_awaited;
            }
        }
        let is_ready = |direction| ready.get(super::record::place(direction)).copied().unwrap_or_default();
        if wanted.is_some_and(is_ready) {
            return Ok(Some(Armed::Ready));
        }
        if ready.contains(&true) {
            return Ok(Some(Armed::Busy));
        }
        self.signalled().store(0, SeqCst);
        self.take_signals(count);
        Ok(None)
    }

    /// Acts on the signals that were seen, on behalf of a thread that polls the control connection
    /// and waits for neither ring: they would end its wait at once.
    pub(super) fn stand_by(&self) -> Result<Armed, Stop> {
        if self.signalled().load(SeqCst) == 0 {
            return Ok(Armed::Asleep);
        }
        Ok(self.drain(None, Waiter::Bystander)?.unwrap_or(Armed::Asleep))
    }

    /// Tells whether no other thread waits for one of the rings.
    fn is_alone(&self, waiter: Waiter) -> bool {
        let all = [Direction::In, Direction::Out];
        let waiting: u32 = all.map(|direction| self.waiting(direction).load(SeqCst)).iter().sum();
        let is_unwatched = || all.iter().all(|direction| self.watch(*direction).is_none());
        match waiter {
            Waiter::Thread => waiting <= 1 && is_unwatched(),
            Waiter::Bystander => waiting == 0 && is_unwatched(),
            Waiter::Epoll => waiting == 0,
        }
    }

    /// The watch by which a thread of this process waits for the ring; `None` if none does.
    fn watch(&self, direction: Direction) -> Option<Watch> {
        let watch = TABLE.watch(self.fd).ok().flatten().filter(|_| TABLE.edge(self.fd).has(Edge::WATCHED))?;
        let has_direction = directions(watch.events as i16).any(|one| one == direction);
        (has_direction && TABLE.waiting_for(watch.epoll) > 0).then_some(watch)
    }

    /// What a thread polls after [`Self::arm`].
    pub(super) fn polled(&self, direction: Direction) -> Polled {
        let is_short = self.hung_up().is_some();
        let events = if direction == Direction::In && self.by_packets() > 0 {
            libc::POLLIN
        } else if is_short {
            // Known already, so it would end every wait at once.
            0
        } else {
            libc::POLLRDHUP
        };
        let stream = if events == 0 { -1 } else { self.fd };
        Polled { control: self.control, stream, events, is_short }
    }

    /// Records what a poll of the two sockets has shown.
    pub(super) fn saw(&self, control: i16, stream: i16) {
        if (control | stream) & libc::POLLNVAL != 0 {
            self.on_closed_number();
        }
        if control & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0 {
            // The next read of signals has to find the end, which causes no further edge.
            self.unread_signals().store(MOST_UNREAD, SeqCst);
        }
        if control & !libc::POLLNVAL != 0 {
            self.signalled().store(1, SeqCst);
        }
        if stream & !(libc::POLLIN | libc::POLLNVAL) != 0 {
            self.set_hung_up();
        }
    }

    /// Looks at the sockets without taking a signal, if many calls in a row found nothing.
    pub(super) fn found_nothing(&self) {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !self.vain().fetch_add(1, SeqCst).is_multiple_of(VAIN_LOOKS) {
            return;
        }
        if let Some(input) = Input::try_lock(self) {
            input.check();
        }
        if let Some(output) = Output::try_lock(self) {
            output.check();
        }
        for (fd, is_control) in [(self.control, true), (self.fd, false)] {
            let Ok(file) = at(fd) else { continue };
            // With this event only, so that signals do not count.
            let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::RDHUP)];
            if poll(&mut polled, Some(&NOW)).is_ok_and(|count| count > 0) {
                let [polled] = polled;
                if polled.revents().contains(PollFlags::NVAL) {
                    self.on_closed_number();
                } else if is_control {
                    self.set(flag::ENDED);
                } else {
                    self.set_hung_up();
                }
            }
        }
    }
}
