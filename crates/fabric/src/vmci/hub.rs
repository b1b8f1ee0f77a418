//! The state of all devices and connections, and one round over what has something to do.
//!
//! A packet from a guest stays in its ring until its receiver has it: the hub keeps only its place ([`super::packets`]). A
//! receiver has a list of the flows that have something for it, and they take turns ([`super::deliver`]); what a flow cannot
//! hand over for want of credit is not in the list. So a bulk stream, or a receiver that does not read, holds back its own
//! connection and no other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::fabric::config::{SocketConfig, SocketWorker, WorkerMode};
use taut_api::fabric::counters::SocketWord;
use taut_api::vmci::Cid;
use taut_virtq::counters::SharedWords;

use super::News;
use super::connection::{Connection, End, Owed, Party, Side, State, Turn};
use super::guest::{Counters, Guest, Receiver, Sender};
use super::host::Hosts;
use super::moderation::Later;
use super::table::Table;
use crate::epoll::{Epoll, signal};
use crate::port::Failure;

/// A connection that nobody has accepted for so long is reset. Guests give up after two seconds.
const HALF_OPEN: Duration = Duration::from_secs(10);
/// Whoever has nothing to do may as well look.
const FOREVER: Duration = Duration::from_secs(3600);
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

    /// Makes the devices what they are wanted to be; tells which could not be, and why.
    pub(super) fn configure(
        &mut self,
        devices: &[SocketConfig],
        worker: &SocketWorker,
    ) -> Vec<(PortId, String)> {
        self.worker = worker.clone();
        let unwanted: Vec<_> = self
            .by_id
            .iter()
            .filter(|(id, guest)| {
                let cid = self.guests[**guest].as_ref().map(|guest| guest.config.cid);
                !devices.iter().any(|device| device.id == **id && Some(device.cid) == cid)
            })
            .map(|(&id, _)| id)
            .collect();
        for id in unwanted {
            self.remove(id);
        }
        let mut refused = Vec::new();
        for device in devices {
            if let Some(&guest) = self.by_id.get(&device.id) {
                if let Some(known) = &mut self.guests[guest]
                    && known.config != *device
                {
                    known.config = device.clone();
                    self.introduce(guest);
                }
            } else if !device.cid.is_a_vms() || self.by_cid.contains_key(&device.cid) {
                let why = format!("the context ID {} is another's, or no VM's", device.cid);
                refused.push((device.id, why));
            } else {
                self.insert(device);
            }
        }
        // Who may no longer talk is told at once.
        for number in self.table.numbers() {
            if !self.is_allowed(number) {
                self.reset(number, None);
            }
        }
        refused
    }

    fn insert(&mut self, device: &SocketConfig) {
        let guest = Guest::new(device.clone(), Counters::new(&self.words, device.id));
        // Peers may not have been told yet of the end of connections that another device had in its place.
        let in_use: HashSet<usize> = self.table.numbers().flat_map(|number| self.guests_of(number)).collect();
        let free =
            (0..self.guests.len()).find(|place| self.guests[*place].is_none() && !in_use.contains(place));
        let place = free.unwrap_or_else(|| {
            self.guests.push(None);
            self.senders.push(Sender::default());
            self.receivers.push(Receiver::default());
            self.guests.len() - 1
        });
        self.guests[place] = Some(guest);
        self.by_cid.insert(device.cid, place);
        self.by_id.insert(device.id, place);
        self.introduce(place);
    }

    /// A guest, and everybody who may talk to it, know each other; nobody else does.
    fn introduce(&mut self, place: usize) {
        let Some(mut guest) = self.guests[place].take() else { return };
        guest.peers.clear();
        for (other_place, other) in self.guests.iter_mut().enumerate() {
            let Some(other) = other else { continue };
            if super::policy::may_talk(&guest.config, &other.config) {
                guest.peers.insert(other.config.cid, other_place);
                other.peers.insert(guest.config.cid, place);
            } else {
                other.peers.remove(&guest.config.cid);
            }
        }
        self.guests[place] = Some(guest);
    }

    fn remove(&mut self, id: PortId) {
        let Some(place) = self.by_id.remove(&id) else { return };
        self.senders[place] = Sender::default();
        self.receivers[place] = Receiver::default();
        self.forget_connections(place);
        self.hosts.forget(place);
        for list in [&mut self.awake, &mut self.busy, &mut self.touched_senders, &mut self.touched_receivers]
        {
            list.retain(|&other| other != place);
        }
        if let Some(guest) = self.guests[place].take() {
            guest.counters.set(SocketWord::Connections, 0);
            self.by_cid.remove(&guest.config.cid);
            for other in self.guests.iter_mut().flatten() {
                other.peers.remove(&guest.config.cid);
            }
        }
    }

    /// May the ends of a connection talk, as they are configured now?
    pub(super) fn is_allowed(&mut self, number: u32) -> bool {
        let Some(connection) = self.table.get(number) else { return true };
        match connection.ends.map(|end| end.party) {
            [Party::Guest(a), Party::Guest(b)] => match (&self.guests[a], &self.guests[b]) {
                (Some(a), Some(b)) => super::policy::may_talk(&a.config, &b.config),
                _ => false,
            },
            _ => true,
        }
    }

    /// The guest has gone, or has started anew: its connections are over, and what it had sent is lost.
    pub(super) fn forget_connections(&mut self, guest: usize) {
        for number in self.table.numbers() {
            let Some(connection) = self.table.get(number) else { continue };
            if !connection.guests().any(|other| other == guest) {
                continue;
            }
            let side = connection.side_of(guest);
            let flow = &mut connection.flows[side];
            (flow.packets, flow.offset) = (super::packets::Packets::default(), 0);
            self.reset(number, Some(side));
        }
        self.senders[guest].taken = 0;
        self.receivers[guest].replies.clear();
        self.receivers[guest].turns.clear();
    }

    /// A device by its port.
    pub(super) fn guest(&self, id: PortId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// Something of a guest's is counted.
    pub(super) fn count(&self, guest: usize, word: SocketWord, by: u64) {
        if let Some(guest) = &self.guests[guest] {
            guest.counters.add(word, by);
        }
    }

    /// Opens a connection; `None` if there is no room for it.
    pub(super) fn open(&mut self, ends: [End; 2], kind: u16, now: Instant) -> Option<u32> {
        let room = |end: &End| match end.party {
            Party::Guest(guest) => {
                self.guests[guest].as_ref().is_some_and(|guest| guest.connections < guest.config.connections)
            }
            Party::Host => true,
        };
        let half_open = |guest: &Guest| guest.half_open < guest.config.half_open;
        let may_ask = match ends[0].party {
            Party::Guest(guest) => self.guests[guest].as_ref().is_some_and(half_open),
            Party::Host => true,
        };
        if !may_ask || !ends.iter().all(room) {
            return None;
        }
        let number = self.table.add(Connection::new(ends, kind, now), None)?;
        for end in ends {
            if let Party::Guest(guest) = end.party
                && let Some(guest) = &mut self.guests[guest]
            {
                guest.count(1);
                guest.counters.add(SocketWord::Opened, 1);
            }
        }
        self.half_open_by(ends[0].party, 1);
        Some(number)
    }

    pub(super) fn half_open_by(&mut self, asker: Party, by: i32) {
        self.requested = self.requested.saturating_add_signed(by as isize);
        if let Party::Guest(guest) = asker
            && let Some(guest) = &mut self.guests[guest]
        {
            guest.half_open = guest.half_open.saturating_add_signed(by);
        }
    }

    /// Somebody has accepted.
    pub(super) fn accepted(&mut self, number: u32) {
        let Some(connection) = self.table.get(number) else { return };
        if connection.state == State::Requested {
            connection.state = State::Open;
            let asker = connection.ends[0].party;
            self.half_open_by(asker, -1);
        }
    }

    /// A connection is over: because of what a side did, or for both sides alike. Whoever does not know is told, behind what it
    /// was sent before.
    pub(super) fn reset(&mut self, number: u32, by: Option<Side>) {
        let Some(connection) = self.table.get(number) else { return };
        if connection.state == State::Requested {
            let asker = connection.ends[0].party;
            connection.state = State::Over;
            self.half_open_by(asker, -1);
        }
        let Some(connection) = self.table.get(number) else { return };
        connection.state = State::Over;
        let mut told = [false; 2];
        for (from, told) in told.iter_mut().enumerate() {
            let flow = &mut connection.flows[from];
            // Whoever has not been told of it need not be told of its end.
            let knows = by == Some(1 - from) || flow.owed.request;
            if by.is_none() {
                (flow.owed, flow.update_later) = (Owed::default(), false);
            }
            flow.ended = true;
            flow.over |= knows;
            if !flow.over {
                flow.owed.reset = true;
            }
            *told = flow.over;
        }
        for from in [0, 1] {
            if told[from] || by.is_none() {
                self.discard(number, from);
            }
            if !told[from] {
                self.has_turn(Turn { connection: number, from });
            }
        }
        self.free_if_over(number);
    }

    /// Gives a flow's packets back, unread.
    pub(super) fn discard(&mut self, number: u32, from: Side) {
        let Some(connection) = self.table.get(number) else { return };
        let flow = &mut connection.flows[from];
        let mut packets = std::mem::take(&mut flow.packets);
        flow.offset = 0;
        let Party::Guest(guest) = connection.ends[from].party else { return };
        let sender = &mut self.senders[guest];
        while let Some(head) = packets.pop(&sender.places) {
            if let Some(ring) = &mut sender.ring {
                ring.queue.give_back(head);
            }
            sender.taken = sender.taken.saturating_sub(1);
        }
        self.touch_sender(guest);
    }

    /// Forgets a connection when everybody knows that it is over.
    pub(super) fn free_if_over(&mut self, number: u32) {
        let Some(connection) = self.table.get(number) else { return };
        if connection.state != State::Over || !connection.flows.iter().all(|flow| flow.over) {
            return;
        }
        for from in [0, 1] {
            self.discard(number, from);
        }
        if let Some(connection) = self.table.remove(number) {
            self.forget_turns(number, &connection);
            for guest in connection.guests() {
                if let Some(guest) = &mut self.guests[guest] {
                    guest.count(-1);
                }
            }
            self.hosts.close(number);
        }
    }

    /// The next connection of this number has other ends: nothing of it is to be found in their lists.
    fn forget_turns(&mut self, number: u32, connection: &Connection) {
        let others = |turn: &Turn| turn.connection != number;
        for from in [0, 1].into_iter().filter(|&from| connection.flows[from].queued) {
            match connection.ends[1 - from].party {
                Party::Guest(guest) => self.receivers[guest].turns.retain(others),
                Party::Host => self.hosts.turns.retain(others),
            }
            self.held.retain(|(_, turn)| others(turn));
        }
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
        while let Some(guest) = self.touched_receivers.pop() {
            let receiver = &mut self.receivers[guest];
            receiver.touched = false;
            let Some(ring) = &mut receiver.ring else { continue };
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

    /// A guest broke a ring: both stop, until its driver sets them up anew.
    pub(super) fn broken(&mut self, guest: usize, queue: usize, failure: Failure) {
        if let Some(known) = &mut self.guests[guest] {
            known.stop(None);
            self.news.push(News::Broken { port: known.config.id, queue, failure });
        }
        self.senders[guest].ring = None;
        self.receivers[guest].ring = None;
        self.forget_connections(guest);
    }
}
