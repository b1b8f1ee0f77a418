//! Where a worker is reached: its epoll set and its inbox.
//!
//! A mailbox outlives its worker: when fewer workers are wanted, descriptors that are still watched there are moved away
//! one by one, and nothing dangles meanwhile.

use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::fabric::counters::MAX_WORKERS;

use super::token;
use crate::sys::epoll::{Epoll, EventFlags, Waker, Watched};
use crate::sys::lock::lock;

/// How long a worker measures its load before it publishes the result.
pub(crate) const LOAD_WINDOW: Duration = Duration::from_millis(100);

/// What a worker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// Another configuration is in force.
    Configured,
    /// What is attached to a port has changed.
    Look(PortId),
    /// A pair of queues is its now.
    Take(PortId, usize),
    /// A receiver somewhere has room again.
    Room,
    /// The deadlines of a pair's queues are its to keep.
    Adopt(PortId, usize),
    /// End, after the burst in hand.
    Quit,
}

/// One worker's place.
#[derive(Debug)]
pub(crate) struct Mailbox {
    events: Epoll,
    waker: Watched<Waker>,
    inbox: Mutex<Vec<Message>>,
    /// The inbox is not empty.
    mail: AtomicBool,
    /// The worker sleeps, or is about to.
    asleep: AtomicBool,
    /// Its transmit queues whose first frame waits for a receiver's room.
    pub(crate) waiting: AtomicU32,
    /// Thousandths of its time that it worked, and when that was measured.
    busy: Mutex<Option<(Instant, u32)>>,
}

impl Mailbox {
    fn new() -> io::Result<Self> {
        let events = Epoll::new()?;
        Ok(Self {
            waker: events.watch(Waker::new()?, token::WAKE, EventFlags::IN)?,
            events,
            inbox: Mutex::default(),
            mail: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            busy: Mutex::default(),
        })
    }

    /// Its epoll set.
    pub(crate) fn events(&self) -> &Epoll {
        &self.events
    }

    /// Tells the worker something, and wakes it if it sleeps.
    pub(crate) fn post(&self, note: Message) {
        let mut inbox = lock(&self.inbox);
        if inbox.contains(&note) {
            // It has not been read yet, and what it asks for is done after it has.
            return;
        }
        inbox.push(note);
        drop(inbox);
        // Either we see the worker asleep, or it sees the mail before it sleeps.
        self.mail.store(true, SeqCst);
        if self.asleep.load(SeqCst) {
            self.waker.wake();
        }
    }

    /// Is there something to read?
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.load(Relaxed)
    }

    /// Everything that was posted.
    pub(crate) fn read(&self, into: &mut Vec<Message>) {
        let mut inbox = lock(&self.inbox);
        self.mail.store(false, Relaxed);
        into.clear();
        into.append(&mut inbox);
    }

    /// The worker is going to sleep; `false` if it must not, because there is mail.
    pub(crate) fn lie_down(&self) -> bool {
        self.asleep.store(true, SeqCst);
        let may = !self.mail.load(SeqCst);
        if !may {
            self.get_up();
        }
        may
    }

    /// The worker is awake.
    pub(crate) fn get_up(&self) {
        self.asleep.store(false, Relaxed);
    }

    /// Forgets wake-ups.
    pub(crate) fn clear_wake_ups(&self) {
        self.waker.clear();
    }

    /// Tells others how busy the worker has been, in thousandths.
    pub(crate) fn set_busy(&self, now: Instant, busy: u32) {
        *lock(&self.busy) = Some((now, busy));
    }

    /// How busy the worker has been; one that has not measured for long has slept.
    pub(crate) fn busy(&self, now: Instant) -> u32 {
        match *lock(&self.busy) {
            Some((at, busy)) if now.saturating_duration_since(at) < 3 * LOAD_WINDOW => busy,
            _ => 0,
        }
    }
}

/// The mailboxes of all workers, by number.
#[derive(Debug)]
pub struct Mailboxes([OnceLock<Mailbox>; MAX_WORKERS]);

impl Mailboxes {
    /// The first worker's mailbox.
    pub fn new() -> io::Result<Self> {
        let mailboxes = Self([const { OnceLock::new() }; MAX_WORKERS]);
        mailboxes.provide(1)?;
        Ok(mailboxes)
    }

    /// Makes sure that the first `count` are there. Only one thread does so.
    pub(crate) fn provide(&self, count: usize) -> io::Result<()> {
        for mailbox in self.0[..count].iter().filter(|mailbox| mailbox.get().is_none()) {
            let _ = mailbox.set(Mailbox::new()?);
        }
        Ok(())
    }

    /// A mailbox that has been provided.
    #[inline]
    pub(crate) fn get(&self, worker: usize) -> &Mailbox {
        self.0[worker].get().expect("workers are numbered below what was provided")
    }

    /// The epoll set of a worker.
    pub(crate) fn events(&self, worker: usize) -> &Epoll {
        self.get(worker).events()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_wakes_who_sleeps_and_keeps_from_sleeping_who_is_about_to() {
        let mailbox = Mailbox::new().unwrap();
        let mut ready = Vec::new();
        let mut messages = Vec::new();
        assert!(mailbox.lie_down());
        mailbox.post(Message::Room);
        mailbox.events().wait(&mut ready, None).unwrap();
        assert_eq!(ready, [(token::WAKE, EventFlags::IN)]);
        mailbox.get_up();
        mailbox.clear_wake_ups();
        mailbox.post(Message::Look(PortId(3)));
        mailbox.post(Message::Room);
        assert!(!mailbox.lie_down(), "there is mail");
        mailbox.read(&mut messages);
        assert_eq!(messages, [Message::Room, Message::Look(PortId(3))]);
        assert!(mailbox.lie_down());
        mailbox.events().wait(&mut ready, Some(std::time::Duration::ZERO)).unwrap();
        assert!(ready.is_empty(), "nobody slept when it was posted");
    }
}
