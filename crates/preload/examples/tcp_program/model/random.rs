//! Random operations, each of which is possible in the state of the connection.

use super::driver::{Control, Driver, Side};
use super::operation::Kind;

/// Most bytes on their way in one direction.
const MOST: usize = 32 << 10;

/// Kinds of operations with their weights.
const CHOICES: [(Kind, u64); 31] = [
    (Kind::Write, 60),
    (Kind::Send, 60),
    (Kind::SendNow, 40),
    (Kind::SendMessage, 40),
    (Kind::ChildWrites, 2),
    (Kind::StreamWrites, 1),
    (Kind::Sendfile, 1),
    (Kind::Splice, 1),
    (Kind::Passed, 1),
    (Kind::Executed, 1),
    (Kind::Spawned, 1),
    (Kind::Standard, 1),
    (Kind::Read, 100),
    (Kind::Peek, 40),
    (Kind::ReadAll, 40),
    (Kind::ReadNow, 60),
    (Kind::ReadPieces, 40),
    (Kind::ChildReads, 2),
    (Kind::SpliceOut, 1),
    (Kind::ReadInVain, 1),
    (Kind::Poll, 60),
    (Kind::Select, 30),
    (Kind::Unread, 30),
    (Kind::Watch, 10),
    (Kind::Events, 40),
    (Kind::Unwatch, 10),
    (Kind::Nonblocking, 20),
    (Kind::Duplicate, 10),
    (Kind::Shutdown, 6),
    (Kind::Flood, 6),
    (Kind::Fill, 2),
];
/// Weight of the end of the connection.
const END: u64 = 15;

/// A generator of numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % most
    }

    /// A number of bytes, short ones more often.
    fn count(&mut self, most: usize) -> usize {
        let magnitude = self.below(13) as u32;
        (1 + self.below(1 << magnitude) as usize).min(most)
    }
}

/// What is known of one end.
#[derive(Default, Clone, Copy)]
struct State {
    /// Bytes that were sent to it and that it has not read.
    unread: usize,
    /// No more bytes come.
    ended: bool,
    nonblocking: bool,
    watched: bool,
}

/// Makes so many operations, on one connection after the other.
pub(super) fn run<S: Control>(driver: &mut Driver<S>, operations: u64, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let end = driver.operations() + operations;
    let total = CHOICES.iter().map(|(_, weight)| weight).sum::<u64>() + END;
    while driver.operations() < end {
        driver.connect();
        let mut walk = Walk { driver, states: [State::default(); 2] };
        loop {
            let side = if random.below(2) == 0 { Side::Own } else { Side::Agent };
            let mut number = random.below(total);
            let chosen = CHOICES.iter().find(|(_, weight)| {
                let is_it = number < *weight;
                number = number.saturating_sub(*weight);
                is_it
            });
            match chosen {
                Some(&(kind, _)) => walk.step(side, kind, &mut random),
                None => break walk.finish(side, &mut random),
            }
            if walk.driver.has_differed() {
                break walk.driver.abandon();
            }
            if walk.driver.operations() >= end {
                break walk.finish(side, &mut random);
            }
        }
    }
}

/// A walk on one connection.
struct Walk<'a, S> {
    driver: &'a mut Driver<S>,
    states: [State; 2],
}

impl<S: Control> Walk<'_, S> {
    fn of(&mut self, side: Side) -> &mut State {
        &mut self.states[side as usize]
    }

    fn step(&mut self, side: Side, kind: Kind, random: &mut Random) {
        let (state, other) = (*self.of(side), *self.of(side.other()));
        let room = MOST - other.unread;
        match kind {
            Kind::Write
            | Kind::Send
            | Kind::SendNow
            | Kind::SendMessage
            | Kind::ChildWrites
            | Kind::StreamWrites
            | Kind::Sendfile
            | Kind::Splice
            | Kind::Passed
            | Kind::Executed
            | Kind::Spawned
            | Kind::Standard => {
                let is_plain = matches!(kind, Kind::Write | Kind::Send | Kind::SendNow | Kind::SendMessage);
                let count = random.count(4096);
                if other.ended {
                    // There is an error, the same for all.
                    if is_plain {
                        self.driver.both(side, kind, count);
                    }
                } else if count <= room {
                    // What was sent before has arrived, so that there is room for sure.
                    self.settle(side.other());
                    self.driver.both(side, kind, count);
                    self.of(side.other()).unread += count;
                }
            }
            Kind::Read
            | Kind::ReadNow
            | Kind::ReadPieces
            | Kind::ReadAll
            | Kind::ChildReads
            | Kind::SpliceOut => {
                let mut count = random.count(8192);
                match kind {
                    // These need that much.
                    Kind::ChildReads | Kind::SpliceOut => count = count.min(state.unread),
                    Kind::ReadPieces => count = count.max(3),
                    Kind::ReadAll if !state.ended && !state.nonblocking => count = count.min(state.unread),
                    _ => {}
                }
                let waits = kind != Kind::ReadNow && !state.nonblocking && !state.ended;
                if count == 0 || state.unread == 0 && (waits || kind == Kind::SpliceOut) {
                    return;
                }
                self.settle(side);
                self.driver.both(side, kind, count);
                let unread = &mut self.of(side).unread;
                *unread -= count.min(*unread);
            }
            Kind::Peek if state.unread > 0 || state.nonblocking || state.ended => {
                self.settle(side);
                self.driver.both(side, kind, random.count(8192));
            }
            Kind::ReadInVain if state.unread == 0 && !state.ended && !state.nonblocking => {
                self.driver.both(side, kind, 0);
            }
            Kind::Events if !state.watched => {}
            Kind::Poll | Kind::Select | Kind::Unread | Kind::Events => {
                self.settle(side);
                self.settle(side.other());
                self.driver.both(side, kind, 0);
            }
            Kind::Watch | Kind::Unwatch if state.watched == (kind == Kind::Unwatch) => {
                self.driver.both(side, kind, 0);
                self.of(side).watched = kind == Kind::Watch;
            }
            Kind::Nonblocking => {
                self.driver.both(side, kind, usize::from(!state.nonblocking));
                self.of(side).nonblocking = !state.nonblocking;
            }
            // The instance would go on with the number that is closed.
            Kind::Duplicate if !state.watched => {
                self.driver.both(side, kind, 0);
            }
            Kind::Shutdown if !other.ended => {
                self.driver.both(side, kind, 0);
                self.of(side.other()).ended = true;
            }
            Kind::Flood if !other.ended && !state.nonblocking && !other.nonblocking => {
                let count = 1 + random.below(600_000) as usize;
                self.driver.flood(side, count, count + other.unread);
                self.of(side.other()).unread = 0;
            }
            Kind::Fill if !other.ended && other.unread == 0 && !other.nonblocking => {
                self.driver.fill(side);
            }
            _ => {}
        }
    }

    /// Waits until an end sees all that was sent to it.
    fn settle(&mut self, side: Side) {
        let State { unread, ended, .. } = *self.of(side);
        self.driver.both(side, if ended { Kind::SettleEnd } else { Kind::Settle }, unread);
    }

    /// Ends the connection: one end closes, or resets it, and the other one reads to the end.
    fn finish(mut self, side: Side, random: &mut Random) {
        let other = side.other();
        if self.of(other).nonblocking {
            self.driver.both(other, Kind::Nonblocking, 0);
        }
        self.settle(other);
        self.settle(side);
        // A close with unread bytes is a reset, too.
        let is_reset = self.of(side).unread > 0 || random.below(4) == 0;
        let is_linger = is_reset && random.below(2) == 0;
        self.driver.both(side, if is_linger { Kind::Reset } else { Kind::Close }, 0);
        if is_linger || self.of(side).unread > 0 {
            self.driver.both(other, Kind::FinishReset, 0);
        } else {
            self.of(other).ended = true;
            self.settle(other);
            self.driver.both(other, Kind::Poll, 0);
            self.driver.both(other, Kind::Finish, 0);
        }
        self.driver.both(other, Kind::Close, 0);
    }
}
