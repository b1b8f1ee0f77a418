//! A worker's mailbox: its epoll set and the messages that others post to it.
//!
//! A mailbox outlives its worker. When fewer workers are wanted, the descriptors that a mailbox
//! still watches are moved to other mailboxes one by one; meanwhile none of them is unwatched.

use std::fmt;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::fabric::counters::MAX_WORKERS;

use super::token;
use crate::net::queue::PairIdx;
use crate::sys::doze::Doze;
use crate::sys::epoll::{Epoll, EventFlags, Waker, Watched};
use crate::sys::lock::lock;

/// Length of the window in which a worker measures its load.
pub(crate) const LOAD_WINDOW: Duration = Duration::from_millis(100);

/// Index of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerIdx(pub u8);

impl WorkerIdx {
    /// The worker that always exists.
    pub const FIRST: Self = Self(0);

    /// The workers from `first` up to, but not including, number `end`.
    pub(crate) fn range(first: usize, end: usize) -> impl Iterator<Item = Self> {
        (first as u8..end as u8).map(Self)
    }

    /// The first `count` workers.
    pub(crate) fn all(count: usize) -> impl Iterator<Item = Self> {
        Self::range(0, count)
    }

    /// Position in an array with one element for each worker.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for WorkerIdx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// Another plan is in force.
    NewPlan,
    /// Look at a port: its attachment has changed.
    Recheck(PortId),
    /// The worker owns a pair of queues now, and the pair may have frames.
    Serve(PortId, PairIdx),
    /// The turn at an uplink of a pair that the worker owns has begun.
    Turn(PortId, PairIdx),
    /// Some receiver has room again.
    RoomAvailable,
    /// The worker keeps the timers of a pair's queues from now on.
    AdoptTimers(PortId, PairIdx),
    /// End after the current burst.
    Quit,
}

/// One worker's epoll set and inbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    events: Epoll,
    waker: Watched<Waker>,
    inbox: Mutex<Vec<Message>>,
    /// Flag by which the worker sleeps and a sender wakes it.
    doze: Doze,
    /// Number of the worker's transmit queues whose first frame waits for a receiver's room.
    pub(crate) waiting: AtomicU32,
    /// The worker's load in thousandths of its time, and the time of the measurement.
    busy: Mutex<Option<(Instant, u32)>>,
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        let events = Epoll::new()?;
        Ok(Self {
            waker: events.watch(Waker::new()?, token::WAKE, EventFlags::IN)?,
            events,
            inbox: Mutex::default(),
            doze: Doze::new(),
            waiting: AtomicU32::new(0),
            busy: Mutex::default(),
        })
    }

    /// The worker's epoll set.
    pub(crate) fn events(&self) -> &Epoll {
        &self.events
    }

    /// Posts a message, and wakes the worker if it sleeps.
    pub(crate) fn post(&self, message: Message) {
        let mut inbox = lock(&self.inbox);
        if inbox.contains(&message) {
            // The worker has not read the earlier copy yet, so it will act after this point.
            return;
        }
        inbox.push(message);
        drop(inbox);
        if self.doze.announce() {
            self.waker.wake();
        }
    }

    /// Tells whether there are messages to read.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.doze.has_news()
    }

    /// Moves all messages to `into`, replacing its contents.
    pub(crate) fn read(&self, into: &mut Vec<Message>) {
        let mut inbox = lock(&self.inbox);
        self.doze.take();
        into.clear();
        into.append(&mut inbox);
    }

    /// Marks the worker as asleep. Returns `false` if it must stay awake because there is mail.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.doze.fall_asleep()
    }

    /// Tells whether the worker sleeps, or is about to.
    pub(crate) fn is_asleep(&self) -> bool {
        self.doze.is_asleep()
    }

    /// Marks the worker as awake.
    pub(crate) fn wake_up(&self) {
        self.doze.wake_up();
    }

    /// Clears the waker's event.
    pub(crate) fn clear_wake_ups(&self) {
        self.waker.clear();
    }

    /// Publishes the worker's load, in thousandths of its time.
    pub(crate) fn set_busy(&self, now: Instant, busy: u32) {
        *lock(&self.busy) = Some((now, busy));
    }

    /// The worker's load in thousandths of its time. A worker that has not measured its load for
    /// three windows has slept, so its load is 0.
    pub(crate) fn busy(&self, now: Instant) -> u32 {
        match *lock(&self.busy) {
            Some((at, busy)) if now.saturating_duration_since(at) < 3 * LOAD_WINDOW => busy,
            _ => 0,
        }
    }
}

/// The mailboxes of all workers.
#[derive(Debug)]
pub struct Mailboxes([OnceLock<Mailbox>; MAX_WORKERS]);

impl Mailboxes {
    /// Creates the first worker's mailbox.
    pub fn new() -> io::Result<Self> {
        let mailboxes = Self([const { OnceLock::new() }; MAX_WORKERS]);
        mailboxes.provide(1)?;
        Ok(mailboxes)
    }

    /// Creates the mailboxes of the first `count` workers, as far as they are missing. Only the
    /// control thread does so.
    pub(crate) fn provide(&self, count: usize) -> io::Result<()> {
        for mailbox in self.0[..count].iter().filter(|mailbox| mailbox.get().is_none()) {
            let _ = mailbox.set(Mailbox::new()?);
        }
        Ok(())
    }

    /// A mailbox that was created before.
    #[inline]
    pub(crate) fn get(&self, worker: WorkerIdx) -> &Mailbox {
        self.0[worker.index()].get().expect("workers are numbered below what was provided")
    }

    /// The epoll set of a worker.
    pub(crate) fn events(&self, worker: WorkerIdx) -> &Epoll {
        self.get(worker).events()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_wakes_a_sleeping_worker_and_keeps_an_awake_one_from_sleeping() {
        let mailbox = Mailbox::new().unwrap();
        let mut ready = Vec::new();
        let mut messages = Vec::new();
        assert!(mailbox.fall_asleep());
        mailbox.post(Message::RoomAvailable);
        mailbox.events().wait(&mut ready, None).unwrap();
        assert_eq!(ready, [(token::WAKE, EventFlags::IN)]);
        mailbox.wake_up();
        mailbox.clear_wake_ups();
        mailbox.post(Message::Recheck(PortId(3)));
        mailbox.post(Message::RoomAvailable);
        assert!(!mailbox.fall_asleep(), "there is mail");
        mailbox.read(&mut messages);
        assert_eq!(messages, [Message::RoomAvailable, Message::Recheck(PortId(3))]);
        assert!(mailbox.fall_asleep());
        mailbox.events().wait(&mut ready, Some(std::time::Duration::ZERO)).unwrap();
        assert!(ready.is_empty(), "the worker was awake when the messages were posted");
    }
}
