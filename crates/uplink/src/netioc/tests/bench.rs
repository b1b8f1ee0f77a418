//! An uplink in virtual time, and ports that send frames of one length.

use std::collections::BTreeMap;

use super::super::{AHEAD, Class, Next, Port, Rate, Reason, Rules, Scheduler, Shares};

pub(super) const GBIT: u64 = 1_000_000_000;

pub(super) fn rate(bits: u64) -> Rate {
    Rate::new(bits).unwrap()
}

pub(super) fn shares(number: u8) -> Rules {
    Rules { shares: Shares::new(number).unwrap(), limit: None, reservation: None }
}

/// A port's frames.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Bytes of a frame on the wire.
    frame: u32,
    /// Times between two frames in ns; 0 for a port that always has one.
    every: u64,
    /// When the next frame is there.
    next: u64,
    /// Frames that wait.
    waiting: u64,
}

pub(super) struct Bench {
    pub(super) scheduler: Scheduler,
    pub(super) now: u64,
    loads: BTreeMap<Port, Load>,
    /// Bytes that each port has sent.
    pub(super) sent: BTreeMap<Port, u64>,
    /// The same, by reservations.
    pub(super) reserved: BTreeMap<Port, u64>,
    /// Longest time from a frame's arrival until it was handed over.
    pub(super) longest: BTreeMap<Port, u64>,
}

impl Bench {
    /// An uplink of this speed; a turn is one frame.
    pub(super) fn new(speed: u64) -> Self {
        Self::with_turns(speed, 1)
    }

    pub(super) fn with_turns(speed: u64, bytes: u32) -> Self {
        Self {
            scheduler: Scheduler::new(rate(speed), bytes),
            // Any time but 0.
            now: 3_600_000_000_123,
            loads: BTreeMap::new(),
            sent: BTreeMap::new(),
            reserved: BTreeMap::new(),
            longest: BTreeMap::new(),
        }
    }

    /// Adds a port that always has a frame of this length.
    pub(super) fn flood(&mut self, class: Class, rules: Rules, frame: u32) -> Port {
        let port = self.scheduler.add_port(class, rules);
        self.loads.insert(port, Load { frame, every: 0, next: self.now, waiting: 0 });
        self.scheduler.ready(port, self.now);
        port
    }

    /// Adds a port with frames of this length at a rate.
    pub(super) fn steady(&mut self, class: Class, rules: Rules, frame: u32, bits_per_s: u64) -> Port {
        let port = self.scheduler.add_port(class, rules);
        let every = u64::from(frame) * 8_000_000_000 / bits_per_s;
        self.loads.insert(port, Load { frame, every, next: self.now, waiting: 0 });
        port
    }

    /// Removes a port.
    pub(super) fn silence(&mut self, port: Port) {
        self.loads.remove(&port);
        // The next port may have the same number.
        self.sent.remove(&port);
        self.scheduler.remove_port(port, self.now);
    }

    /// Lets so much time pass.
    pub(super) fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.arrive();
            let arrival = self.loads.values().filter(|load| load.every > 0).map(|load| load.next).min();
            let until = match self.scheduler.next(self.now) {
                Next::Send(turn) => {
                    self.send(turn);
                    continue;
                }
                Next::Wait(at) => {
                    assert!(at > self.now, "it waits for the past");
                    at
                }
                Next::Idle => end,
            };
            self.now = until.min(arrival.unwrap_or(end)).min(end);
        }
    }

    fn arrive(&mut self) {
        for (&port, load) in &mut self.loads {
            while load.every > 0 && load.next <= self.now {
                load.next += load.every;
                load.waiting += 1;
                self.scheduler.ready(port, self.now);
            }
        }
    }

    fn send(&mut self, turn: super::super::Turn) {
        let load = self.loads.get_mut(&turn.port).expect("a port without frames has no turn");
        let mut bytes = 0;
        loop {
            if load.every > 0 {
                let begun = load.next - load.waiting * load.every;
                let longest = self.longest.entry(turn.port).or_default();
                *longest = (*longest).max(self.now - begun);
                load.waiting -= 1;
            }
            bytes += load.frame;
            let is_empty = load.every > 0 && load.waiting == 0;
            if is_empty || bytes + load.frame > turn.bytes {
                break;
            }
        }
        *self.sent.entry(turn.port).or_default() += u64::from(bytes);
        if turn.reason != Reason::Shares {
            *self.reserved.entry(turn.port).or_default() += u64::from(bytes);
        }
        let has_more = load.every == 0 || load.waiting > 0;
        self.scheduler.sent(turn, bytes, has_more, self.now);
    }

    /// Bits a second of a port over a time.
    pub(super) fn rate_of(&self, port: Port, ns: u64) -> f64 {
        self.sent.get(&port).copied().unwrap_or(0) as f64 * 8e9 / ns as f64
    }

    /// Bytes of all ports.
    pub(super) fn total(&self) -> u64 {
        self.sent.values().sum()
    }
}

/// Bytes that an uplink takes in this time, with what is handed to it ahead.
pub(super) fn capacity(speed: u64, ns: u64) -> u64 {
    (ns + AHEAD) * (speed / 1_000_000) / 8000
}
