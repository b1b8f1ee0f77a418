//! Turns of ports that ask: a port comes with a frame in hand, and may send it now or has to wait.
//!
//! While nobody waits and the uplink keeps up, a port without a limit sends without a turn, and a
//! question costs a few comparisons. As soon as one has to wait, the [`Scheduler`] gives one port
//! after the other a turn. A port whose turn begins is woken ([`Turns::take_woken`]), because it
//! does not ask again by itself.
//!
//! Others do not wait for a port that has a turn: the time that the turn takes on the uplink is set
//! aside. So a port that is served late loses nothing, and one that does not use its turn wastes no
//! more than its own part of the uplink.

use std::collections::VecDeque;

use super::node::Port;
use super::rules::{Class, Rate, Rules};
use super::scheduler::{Next, Scheduler, TURN_BYTES, Turn};

/// Time in ns for which a turn stays with a port that does not use it. It covers the time until a
/// busy worker serves the port.
const KEPT: u64 = 2_000_000;
/// Time of transmission of a turn in ns, on an uplink on which [`TURN_BYTES`] take longer.
const TURN_TIME: u64 = 100_000;
/// Bytes of the shortest turn: those of a frame of the usual longest kind on the wire.
const LEAST_TURN_BYTES: u32 = 1538;

/// Turns of the ports of one uplink. All times are in ns since any fixed point in time.
#[derive(Debug)]
pub struct Turns {
    scheduler: Scheduler,
    /// Turns that have begun, by the place of their port.
    begun: Vec<Option<Begun>>,
    /// Ports that have to be told that their turns have begun.
    woken: VecDeque<Port>,
    /// Time at which the next turn can begin; `None` if nobody waits.
    next_turn: Option<u64>,
}

/// A turn that has begun.
#[derive(Debug, Clone, Copy)]
struct Begun {
    turn: Turn,
    /// Bytes on the wire that the port has sent within the turn.
    used: u32,
    /// End of the time for which it stays with the port.
    until: u64,
}

impl Turns {
    /// Returns the turns of an uplink without ports.
    pub fn new(speed: Rate) -> Self {
        Self {
            scheduler: Scheduler::new(speed, turn_bytes(speed)),
            begun: Vec::new(),
            woken: VecDeque::new(),
            next_turn: None,
        }
    }

    /// Sets the speed of the uplink.
    pub fn set_speed(&mut self, speed: Rate) {
        self.scheduler.set_speed(speed, turn_bytes(speed));
    }

    /// Sets the rules of a class.
    pub fn set_class(&mut self, class: Class, rules: Rules, now: u64) {
        self.scheduler.set_class(class, rules, now);
    }

    /// Adds a port without anything to send.
    pub fn add_port(&mut self, class: Class, rules: Rules) -> Port {
        let port = self.scheduler.add_port(class, rules);
        if self.begun.len() <= port.index() {
            self.begun.resize(port.index() + 1, None);
        }
        port
    }

    /// Sets the rules of a port.
    pub fn set_port(&mut self, port: Port, rules: Rules, now: u64) {
        self.scheduler.set_port(port, rules, now);
    }

    /// Removes a port. The next port that is added may be given the same number.
    pub fn remove_port(&mut self, port: Port, now: u64) {
        self.begun[port.index()] = None;
        self.woken.retain(|woken| *woken != port);
        self.scheduler.remove_port(port, now);
    }

    /// Returns whether a port may send a frame of these bytes on the wire now. If not, the port
    /// waits until it is woken.
    #[inline]
    pub fn ask(&mut self, port: Port, bytes: u32, now: u64) -> bool {
        self.scheduler.is_free(port, now) || self.ask_for_turn(port, bytes, now)
    }

    #[inline(never)]
    fn ask_for_turn(&mut self, port: Port, bytes: u32, now: u64) -> bool {
        if let Some(Begun { turn, used, until }) = self.begun[port.index()] {
            let fits = used == 0 || used.saturating_add(bytes) <= turn.bytes;
            if fits && now < until {
                return true;
            }
            // The uplink has waited for what was not used in time.
            let charged = if now < until { used } else { used.max(turn.bytes) };
            self.settle(port, charged, true, now);
        }
        self.scheduler.expect(port, bytes);
        self.scheduler.ready(port, now);
        self.update(now);
        self.begun[port.index()].is_some()
    }

    /// Notes a frame that a port has sent, in bytes on the wire.
    #[inline]
    pub fn sent(&mut self, port: Port, bytes: u32, now: u64) {
        if self.scheduler.is_held(port) {
            self.count_sent(port, bytes, now);
        } else {
            self.scheduler.sent_freely(bytes, now);
        }
    }

    #[inline(never)]
    fn count_sent(&mut self, port: Port, bytes: u32, now: u64) {
        match &mut self.begun[port.index()] {
            Some(begun) => begun.used = begun.used.saturating_add(bytes),
            None => self.scheduler.sent_without_turn(port, bytes, now),
        }
    }

    /// Notes that a port has sent what it had in hand. `has_more` tells that it waits with more
    /// frames. What its turn has left goes to the others.
    #[inline]
    pub fn done(&mut self, port: Port, has_more: bool, now: u64) {
        if let Some(Begun { used, .. }) = self.begun[port.index()] {
            self.settle(port, used, has_more, now);
            self.update(now);
        }
    }

    /// Begins the turns that can begin now.
    pub fn update(&mut self, now: u64) {
        self.next_turn = loop {
            match self.scheduler.next(now) {
                Next::Send(turn) => {
                    let begun = Begun { turn, used: 0, until: now.saturating_add(KEPT) };
                    self.begun[turn.port.index()] = Some(begun);
                    self.woken.push_back(turn.port);
                }
                Next::Wait(at) => break Some(at),
                Next::Idle => break None,
            }
        };
    }

    /// Returns when [`Turns::update`] is due; `None` if nobody waits.
    pub fn next_turn(&self) -> Option<u64> {
        self.next_turn
    }

    /// Takes a port that has to be told that its turn has begun.
    #[inline]
    pub fn take_woken(&mut self) -> Option<Port> {
        self.woken.pop_front()
    }

    /// Ends a turn, and counts it with these bytes.
    fn settle(&mut self, port: Port, bytes: u32, has_more: bool, now: u64) {
        if let Some(Begun { turn, .. }) = self.begun[port.index()].take() {
            self.scheduler.sent(turn, bytes, has_more, now);
        }
    }
}

/// Returns the bytes of a turn on an uplink of this speed.
fn turn_bytes(speed: Rate) -> u32 {
    let bytes = u128::from(speed.bits_per_s()) * u128::from(TURN_TIME) / 8_000_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(LEAST_TURN_BYTES, TURN_BYTES)
}
