//! The state of all devices and connections, and one round over what has something to do.
//!
//! A packet from a guest stays in its ring until its receiver has it: the hub keeps only its place ([`super::packets`]). A
//! receiver has a list of the flows that have something for it, and they take turns ([`super::deliver`]); what a flow cannot
//! hand over for want of credit is not in the list. So a bulk stream, or a receiver that does not read, holds back its own
//! connection and no other.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::fabric::config::{SocketWorker, WorkerMode};
use taut_api::fabric::counters::SocketWord;
use taut_api::vmci::Cid;
use taut_virtq::counters::SharedWords;

use super::News;
use super::connection::{Party, State, Turn};
use super::guest::{Guest, Receiver, Sender};
use super::host::Hosts;
use super::moderation::Later;
use super::table::Table;
use crate::sys::epoll::{Epoll, signal};

/// A connection that nobody has accepted for so long is reset. Guests give up after two seconds.
const HALF_OPEN: Duration = Duration::from_secs(10);
/// Nothing is due.
pub(super) const FOREVER: Duration = Duration::from_secs(3600);
/// How often half-open connections are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// Everything. One lock protects it ([`super::Shared`]).
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) words: Arc<SharedWords>,
    pub(super) events: Epoll,
    pub(super) guests: Vec<Option<Guest>>,
    /// By the same numbers.
    pub(super) senders: Vec<Sender>,
    pub(super) receivers: Vec<Receiver>,
    pub(super) by_cid: HashMap<Cid, usize>,
    pub(super) by_id: BTreeMap<PortId, usize>,
    pub(super) table: Table,
    pub(super) hosts: Hosts,
    /// Senders that are looked at in each round.
    pub(super) awake: Vec<usize>,
    /// Receivers with something to do.
    pub(super) busy: Vec<usize>,
    /// Whose rings have changed in this round.
    pub(super) touched_senders: Vec<usize>,
    pub(super) touched_receivers: Vec<usize>,
    /// Payload handed over that the guests have not been shown.
    pub(super) unshown: u32,
    /// The guest that was last shown something for it.
    pub(super) shown: usize,
    /// Flows of small packets that wait for more, and until when.
    pub(super) held: Vec<(Instant, Turn)>,
    /// What guests need not know at once.
    pub(super) later: Later,
    /// Connections that nobody has accepted.
    pub(super) requested: usize,
    swept: Instant,
    pub(super) news: Vec<News>,
    pub(super) worker: SocketWorker,
    /// It serves: another fabric does not.
    pub(super) begun: bool,
    pub(super) quit: bool,
}

impl Hub {
    pub(super) fn new(words: &Arc<SharedWords>) -> io::Result<Self> {
        Ok(Self {
            words: Arc::clone(words),
            events: Epoll::new()?,
            guests: Vec::new(),
            senders: Vec::new(),
            receivers: Vec::new(),
            by_cid: HashMap::new(),
            by_id: BTreeMap::new(),
            table: Table::new(words),
            hosts: Hosts::default(),
            awake: Vec::new(),
            busy: Vec::new(),
            touched_senders: Vec::new(),
            touched_receivers: Vec::new(),
            unshown: 0,
            shown: 0,
            held: Vec::new(),
            later: Later::default(),
            requested: 0,
            swept: Instant::now(),
            news: Vec::new(),
            worker: SocketWorker::default(),
            begun: false,
            quit: false,
        })
    }

    /// A flow has something for its receiver.
    pub(super) fn has_turn(&mut self, turn: Turn) {
        let Some(connection) = self.table.get(turn.connection) else { return };
        let flow = &mut connection.flows[turn.from];
        if std::mem::replace(&mut flow.queued, true) {
            return;
        }
        match connection.ends[1 - turn.from].party {
            Party::Guest(guest) => {
                self.receivers[guest].turns.push_back(turn);
                self.list(guest);
            }
            Party::Host => self.hosts.turns.push_back(turn),
        }
    }

    /// A receiver has something to do.
    pub(super) fn list(&mut self, guest: usize) {
        if !std::mem::replace(&mut self.receivers[guest].listed, true) {
            self.busy.push(guest);
        }
    }

    pub(super) fn touch_sender(&mut self, guest: usize) {
        if !std::mem::replace(&mut self.senders[guest].touched, true) {
            self.touched_senders.push(guest);
        }
    }

    pub(super) fn touch_receiver(&mut self, guest: usize) {
        if !std::mem::replace(&mut self.receivers[guest].touched, true) {
            self.touched_receivers.push(guest);
        }
    }

    /// Has a sender looked at in each round until it has been silent for a while.
    pub(super) fn wake(&mut self, guest: usize, now: Instant) {
        let longest = self.patience();
        let sender = &mut self.senders[guest];
        if sender.ring.is_some() && !std::mem::replace(&mut sender.awake, true) {
            if let Some(last) = sender.last.replace(now) {
                sender.polling.was_silent(now.saturating_duration_since(last), longest);
            }
            self.awake.push(guest);
        }
    }

    /// One look at everything that has something to do; `true` if there was anything.
    pub(super) fn round(&mut self, now: Instant) -> bool {
        let mut worked = self.look_at_times(now);
        let mut at = 0;
        while let Some(&guest) = self.awake.get(at) {
            let took = self.take_from(guest, now);
            worked |= took;
            if took || !self.falls_asleep(guest, now) {
                at += 1;
            } else {
                self.senders[guest].awake = false;
                self.awake.swap_remove(at);
            }
        }
        for _ in 0..self.busy.len() {
            let guest = self.busy.swap_remove(0);
            self.receivers[guest].listed = false;
            worked |= self.deliver_to(guest, now);
        }
        worked |= self.serve_hosts(now);
        self.publish(now);
        worked
    }

    /// For how long there is nothing to do unless something happens; `None`: there is.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        if !self.awake.is_empty() || !self.busy.is_empty() || !self.hosts.turns.is_empty() {
            return None;
        }
        let held = self.held.iter().map(|(until, _)| *until).min();
        let sweep = (self.requested > 0).then(|| self.swept + SWEEP);
        let next = held.into_iter().chain(sweep).chain(self.later.next()).min();
        Some(next.map_or(FOREVER, |next| next.saturating_duration_since(now)))
    }

    fn look_at_times(&mut self, now: Instant) -> bool {
        let mut due = self.tell_what_is_due(now);
        if !self.held.is_empty() {
            for (until, turn) in std::mem::take(&mut self.held) {
                if now < until {
                    self.held.push((until, turn));
                    continue;
                }
                due = true;
                if let Some(connection) = self.table.get(turn.connection) {
                    connection.flows[turn.from].queued = false;
                    self.has_turn(turn);
                }
            }
        }
        if self.requested > 0 && now.duration_since(self.swept) >= SWEEP {
            self.swept = now;
            for number in self.table.numbers() {
                let Some(connection) = self.table.get(number) else { continue };
                let waited = now.saturating_duration_since(connection.since);
                if connection.state == State::Requested && waited >= HALF_OPEN {
                    self.reset(number, None);
                }
            }
        }
        due
    }

    /// The longest that a silent sender is looked at.
    fn patience(&self) -> Duration {
        match self.worker.mode {
            WorkerMode::Interrupt => Duration::ZERO,
            WorkerMode::Adaptive { poll_us } => Duration::from_micros(poll_us.into()),
            WorkerMode::Polling => Duration::MAX,
        }
    }

    /// May a sender that had nothing be left alone until it kicks?
    fn falls_asleep(&mut self, guest: usize, now: Instant) -> bool {
        let longest = self.patience();
        let sender = &mut self.senders[guest];
        let patience = match self.worker.mode {
            WorkerMode::Polling => longest,
            _ => sender.polling.window(longest),
        };
        if sender.last.is_some_and(|last| now.saturating_duration_since(last) < patience) {
            return false;
        }
        sender.ring.as_mut().is_none_or(|ring| !ring.queue.arm_kicks())
    }

    /// Shows the guests what has been given back and delivered, and interrupts those that want it.
    pub(super) fn publish(&mut self, now: Instant) {
        self.unshown = 0;
        while let Some(guest) = self.touched_receivers.pop() {
            let receiver = &mut self.receivers[guest];
            receiver.touched = false;
            let Some(ring) = &mut receiver.ring else { continue };
            self.shown = guest;
            ring.queue.publish();
            if ring.queue.needs_interrupt()
                && let Some(call) = &receiver.call
            {
                signal(call);
                self.count(guest, SocketWord::Interrupts, 1);
            }
        }
        while let Some(guest) = self.touched_senders.pop() {
            let sender = &mut self.senders[guest];
            sender.touched = false;
            let Some(ring) = &mut sender.ring else { continue };
            ring.queue.publish();
            if ring.queue.needs_interrupt() {
                self.call_sender_later(guest, now);
            }
            if self.is_short_of_room(guest) {
                self.call_sender(guest);
            }
        }
    }
}
