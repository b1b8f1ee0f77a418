//! Network I/O control of an uplink: which ports may send to it now (row VN-5).
//!
//! The rules are those of `taut_uplink::netioc`; here they meet ports and the clock. A sender that
//! has to wait keeps its frames in its own queue. Its worker serves it again when its turn begins.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::network_io::{NetworkAllocation, TrafficClass};
use taut_uplink::netioc::{Class, Port, Rate, Rules, Shares, Turns};

use crate::net::queue::PairIdx;
use crate::wake::timers::{Timers, Wake};

/// Time after which a sender asks again although it was not woken: the one that was to wake it may
/// have ended.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Wanted network I/O control of an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkIoSetup {
    /// Speed of the uplink in bit/s.
    pub speed: u64,
    /// Classes that differ from their defaults.
    pub classes: BTreeMap<TrafficClass, NetworkAllocation>,
    /// Ports of the uplink's segment.
    pub senders: BTreeMap<PortId, (TrafficClass, NetworkAllocation)>,
}

/// Network I/O control of an uplink, and the senders that wait.
#[derive(Debug)]
pub struct NetworkIo {
    turns: Turns,
    setup: NetworkIoSetup,
    /// Senders by port number.
    senders: Vec<Option<Sender>>,
    /// Port number of each port of `turns`.
    numbers: Vec<PortId>,
    /// The point in time from which the rules count.
    epoch: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Sender {
    port: Port,
    /// One bit for each queue pair that waits for a turn.
    waiting: u8,
    /// The pair that had the last turn.
    last: u32,
    /// Bytes that were noted as sent and wait: the next ones are not noted.
    unsent: u64,
}

impl Sender {
    /// Takes the waiting pair that comes after the last one, in a circle.
    fn take_next(&mut self) -> Option<PairIdx> {
        let behind = (u16::from(self.waiting) >> (self.last + 1)) << (self.last + 1);
        let pair = if behind != 0 { behind } else { u16::from(self.waiting) }.trailing_zeros();
        if pair >= u8::BITS {
            return None;
        }
        self.waiting &= !(1 << pair);
        self.last = pair;
        Some(PairIdx(pair))
    }
}

impl NetworkIo {
    /// Creates network I/O control whose ports have sent nothing.
    pub fn new(setup: NetworkIoSetup, now: Instant) -> Self {
        let empty = NetworkIoSetup { speed: setup.speed, classes: BTreeMap::new(), senders: BTreeMap::new() };
        let mut new = Self {
            turns: Turns::new(rate(setup.speed)),
            setup: empty,
            senders: Vec::new(),
            numbers: Vec::new(),
            epoch: now,
        };
        new.set(setup, now);
        new
    }

    /// Changes what differs.
    pub fn set(&mut self, wanted: NetworkIoSetup, now: Instant) {
        let before = std::mem::replace(&mut self.setup, wanted);
        let now = self.since_epoch(now);
        if before.speed != self.setup.speed {
            self.turns.set_speed(rate(self.setup.speed));
        }
        for class in TrafficClass::ALL {
            let of = |setup: &NetworkIoSetup| allocation(setup, class);
            if of(&before) != of(&self.setup) {
                self.turns.set_class(netioc_class(class), rules(of(&self.setup)), now);
            }
        }
        for (id, was) in &before.senders {
            if self.setup.senders.get(id).is_none_or(|is| is.0 != was.0) {
                self.remove(*id, now);
            }
        }
        for (id, (class, allocation)) in self.setup.senders.clone() {
            let is_same = before.senders.get(&id).is_some_and(|was| was.1 == allocation);
            match self.sender(id).map(|sender| sender.port) {
                None => self.add(id, class, allocation),
                Some(port) if !is_same => self.turns.set_port(port, rules(allocation), now),
                Some(_) => {}
            }
        }
    }

    fn add(&mut self, id: PortId, class: TrafficClass, allocation: NetworkAllocation) {
        let port = self.turns.add_port(netioc_class(class), rules(allocation));
        if self.numbers.len() <= port.index() {
            self.numbers.resize(port.index() + 1, id);
        }
        self.numbers[port.index()] = id;
        let place = usize::from(id.0);
        if self.senders.len() <= place {
            self.senders.resize(place + 1, None);
        }
        self.senders[place] = Some(Sender { port, waiting: 0, last: 0, unsent: 0 });
    }

    fn remove(&mut self, id: PortId, now: u64) {
        if let Some(sender) = self.senders.get_mut(usize::from(id.0)).and_then(Option::take) {
            self.turns.remove_port(sender.port, now);
        }
    }

    #[inline]
    fn sender(&mut self, id: PortId) -> Option<&mut Sender> {
        self.senders.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Returns when a sender asks again that must not send a frame of these bytes on the wire yet;
    /// `None` if it may send it now.
    #[inline]
    pub fn wait(&mut self, from: PortId, pair: PairIdx, bytes: u64, now: Instant) -> Option<Instant> {
        let at = self.since_epoch(now);
        let Sender { port, unsent, .. } = *self.sender(from)?;
        let may_send = bytes <= unsent || self.turns.ask(port, number(bytes - unsent), at);
        let sender = self.sender(from)?;
        if may_send {
            sender.waiting &= !(1 << pair.0);
            return None;
        }
        sender.waiting |= 1 << pair.0;
        Some(now + LONGEST_SLEEP)
    }

    /// Notes a frame that a sender has sent, in bytes on the wire.
    #[inline]
    pub fn sent(&mut self, from: PortId, bytes: u64, now: Instant) {
        let at = self.since_epoch(now);
        if let Some(sender) = self.sender(from) {
            let known = sender.unsent.min(bytes);
            sender.unsent -= known;
            let port = sender.port;
            if known < bytes {
                self.turns.sent(port, number(bytes - known), at);
            }
        }
    }

    /// Takes back what was noted as sent and waits. The sender has had its turn for it.
    pub fn not_sent(&mut self, from: PortId, bytes: u64) {
        if let Some(sender) = self.sender(from) {
            sender.unsent += bytes;
        }
    }

    /// Notes that a burst of a sender has ended.
    pub fn done(&mut self, from: PortId, now: Instant) {
        let at = self.since_epoch(now);
        if let Some(Sender { port, waiting, .. }) = self.sender(from).copied() {
            self.turns.done(port, waiting != 0, at);
        }
    }

    /// Begins the turns that can begin now.
    pub fn update(&mut self, now: Instant) {
        let at = self.since_epoch(now);
        self.turns.update(at);
    }

    /// Has the senders served whose turns have begun. Returns when [`Self::update`] is due.
    pub fn wake_senders(&mut self, now: Instant, timers: &mut Timers) -> Option<Instant> {
        while let Some(port) = self.turns.take_woken() {
            let id = self.numbers[port.index()];
            if let Some(pair) = self.sender(id).and_then(Sender::take_next) {
                timers.set(now, Wake::Turn(id, pair));
            }
        }
        self.turns.next_turn().map(|at| self.epoch + Duration::from_nanos(at))
    }

    fn since_epoch(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_nanos() as u64
    }
}

/// Returns the allocation of a class.
pub fn allocation(setup: &NetworkIoSetup, class: TrafficClass) -> NetworkAllocation {
    setup.classes.get(&class).copied().unwrap_or_else(|| class.default_allocation())
}

const fn netioc_class(class: TrafficClass) -> Class {
    match class {
        TrafficClass::Management => Class::Management,
        TrafficClass::FaultTolerance => Class::FaultTolerance,
        TrafficClass::Nfs => Class::Nfs,
        TrafficClass::Iscsi => Class::Iscsi,
        TrafficClass::Vsan => Class::Vsan,
        TrafficClass::Vmotion => Class::Vmotion,
        TrafficClass::Replication => Class::Replication,
        TrafficClass::Backup => Class::Backup,
        TrafficClass::VirtualMachine => Class::VirtualMachine,
    }
}

/// Translates an allocation. Rates that are too low, which `tautd` does not admit, are none.
fn rules(allocation: NetworkAllocation) -> Rules {
    let NetworkAllocation { shares, reservation, limit } = allocation;
    Rules {
        shares: Shares::new(shares.number()).unwrap_or(Shares::NORMAL),
        limit: limit.and_then(|limit| Rate::new(limit.0)),
        reservation: reservation.and_then(|reservation| Rate::new(reservation.0)),
    }
}

/// Translates a speed. The lowest rate stands for one that is lower still.
fn rate(bits_per_s: u64) -> Rate {
    Rate::new(bits_per_s.max(Rate::LEAST)).expect("not below the lowest rate")
}

fn number(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = 1538;

    fn setup(senders: &[(u16, &str)]) -> NetworkIoSetup {
        let sender =
            |(id, text): &(u16, &str)| (PortId(*id), (TrafficClass::default(), text.parse().unwrap()));
        NetworkIoSetup {
            speed: 1_000_000_000,
            classes: BTreeMap::new(),
            senders: senders.iter().map(sender).collect(),
        }
    }

    /// A burst of a port's pair that sends until it has to wait, or so many frames.
    fn burst(io: &mut NetworkIo, port: u16, pair: u32, frames: u64, now: Instant) -> u64 {
        let mut sent = 0;
        while sent < frames && io.wait(PortId(port), PairIdx(pair), FRAME, now).is_none() {
            io.sent(PortId(port), FRAME, now);
            sent += 1;
        }
        io.done(PortId(port), now);
        sent
    }

    /// Lets senders send for a second whenever they are served. Returns the frames of each.
    fn run(io: &mut NetworkIo, now: Instant, frames: u64) -> BTreeMap<(u16, u32), u64> {
        let mut timers = Timers::default();
        let mut sent = BTreeMap::new();
        let mut at = now;
        while at < now + Duration::from_secs(1) {
            io.update(at);
            let next = io.wake_senders(at, &mut timers);
            match timers.pop_due(at) {
                // A source is served until it has to wait.
                Some((_, Wake::Turn(PortId(port), PairIdx(pair)))) => loop {
                    let got = burst(io, port, pair, frames, at);
                    *sent.entry((port, pair)).or_default() += got;
                    if got < frames {
                        break;
                    }
                },
                Some(other) => panic!("{other:?}"),
                None => at = next.expect("somebody waits"),
            }
        }
        sent
    }

    #[test]
    fn a_port_that_has_to_wait_is_served_when_its_turn_begins() {
        for frames in [1, 3, 64] {
            let now = Instant::now();
            let mut io = NetworkIo::new(setup(&[(7, "shares=low"), (300, "shares=high")]), now);
            while burst(&mut io, 7, 0, 64, now) == 64 {}
            burst(&mut io, 300, 0, 64, now);
            let sent = run(&mut io, now, frames);
            let ratio = sent[&(300, 0)] as f64 / sent[&(7, 0)] as f64;
            assert!((3.9..4.1).contains(&ratio), "{frames} frames a burst: {sent:?}");
        }
    }

    #[test]
    fn what_was_not_sent_is_counted_once() {
        let count = |fail: bool| {
            let now = Instant::now();
            let mut io = NetworkIo::new(setup(&[(1, "default"), (2, "default")]), now);
            let mut sent = 0;
            while io.wait(PortId(1), PairIdx(0), FRAME, now).is_none() {
                io.sent(PortId(1), FRAME, now);
                sent += 1;
                if fail && sent % 5 == 0 {
                    // Two frames found no room, and one of them comes in two parts now.
                    io.not_sent(PortId(1), 2 * FRAME);
                    for part in [FRAME, FRAME / 2, FRAME - FRAME / 2] {
                        assert_eq!(io.wait(PortId(1), PairIdx(0), part, now), None);
                        io.sent(PortId(1), part, now);
                    }
                }
            }
            sent
        };
        assert!(count(false) > 10);
        assert_eq!(count(true), count(false));
    }

    #[test]
    fn all_pairs_of_a_port_are_served_in_its_turn() {
        let now = Instant::now();
        let mut io = NetworkIo::new(setup(&[(1, "default"), (2, "default")]), now);
        while burst(&mut io, 1, 0, 64, now) == 64 {}
        for (port, pair) in [(1, 7), (2, 3)] {
            assert_eq!(burst(&mut io, port, pair, 64, now), 0);
        }
        let sent = run(&mut io, now, 64);
        let [first, second] = [sent[&(1, 0)], sent[&(1, 7)]];
        assert!(first > 1000 && second > 1000, "{sent:?}");
        assert!(first.abs_diff(second) <= first / 20, "{sent:?}");
        let ratio = (first + second) as f64 / sent[&(2, 3)] as f64;
        assert!((0.95..1.05).contains(&ratio), "{sent:?}");
    }

    #[test]
    fn a_change_keeps_those_that_wait_and_removes_those_that_are_gone() {
        let now = Instant::now();
        let mut io = NetworkIo::new(setup(&[(1, "default"), (2, "default")]), now);
        while burst(&mut io, 1, 2, 64, now) == 64 {}
        burst(&mut io, 2, 2, 64, now);
        io.set(setup(&[(2, "shares=high"), (3, "default")]), now);
        assert_eq!(io.wait(PortId(1), PairIdx(0), FRAME, now), None, "an unknown port is not controlled");
        let mut timers = Timers::default();
        let later = now + Duration::from_millis(1);
        io.update(later);
        io.wake_senders(later, &mut timers);
        assert_eq!(timers.pop_due(later), Some((later, Wake::Turn(PortId(2), PairIdx(2)))));
    }
}
