//! The people at a console: what waits for each of them, and what they have typed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum number of people at one console.
pub const MOST_CLIENTS: usize = 8;
/// Maximum number of bytes that wait for one of them.
pub const MOST_WAITING: usize = 256 << 10;
/// Time after which someone for whom as much waits, and who takes nothing, is disconnected.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of typed bytes that wait for the guest.
pub const INPUT: usize = 4096;
/// Time after which input is discarded if the guest takes nothing.
pub const GUEST_PATIENCE: Duration = Duration::from_secs(1);

/// Output that waits for one client.
///
/// When too much waits, what follows is left out until half of it was taken, and a line says so. A
/// client that takes nothing at all meanwhile is stuck.
#[derive(Debug)]
pub struct Outbox {
    waiting: VecDeque<u8>,
    /// Number of bytes that were left out behind those that wait.
    left_out: u64,
    /// Time at which the client last took something, or had nothing to take.
    taken_at: Instant,
}

impl Outbox {
    /// Creates an outbox in which nothing waits.
    pub const fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), left_out: 0, taken_at: now }
    }

    /// Adds output.
    pub fn push(&mut self, bytes: &[u8], now: Instant) {
        if self.waiting.is_empty() {
            self.taken_at = now;
        }
        if self.left_out > 0 || self.waiting.len() + bytes.len() > MOST_WAITING {
            self.left_out += bytes.len() as u64;
        } else {
            self.waiting.extend(bytes);
        }
    }

    /// Returns bytes that wait; empty if none do.
    pub fn front(&self) -> &[u8] {
        self.waiting.as_slices().0
    }

    /// Notes that the client has taken `count` bytes of [`Self::front`].
    pub fn taken(&mut self, count: usize, now: Instant) {
        self.waiting.drain(..count);
        self.taken_at = now;
        if self.left_out > 0 && self.waiting.len() <= MOST_WAITING / 2 {
            let notice = format!("\r\n[taut: {} bytes are not shown: read faster]\r\n", self.left_out);
            self.waiting.extend(notice.as_bytes());
            self.left_out = 0;
        }
    }

    /// Returns the time at which the client is stuck, unless it takes something before.
    pub fn stuck_at(&self) -> Option<Instant> {
        (self.left_out > 0).then(|| self.taken_at + PATIENCE)
    }
}

/// Input that waits for the guest.
///
/// Input is passed on without loss as long as the guest takes some of it. When the guest has taken
/// nothing for a while, further input is discarded: nobody reads that serial port.
#[derive(Debug, Default)]
pub struct Input {
    waiting: VecDeque<u8>,
    full_since: Option<Instant>,
}

/// The use that there is for further input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// There is room for this number of bytes.
    Bytes(usize),
    /// There is no room: let the client wait.
    Nothing,
    /// The guest takes nothing: read and discard.
    Discard,
}

impl Input {
    /// Returns the use for further input.
    pub fn wants(&self, now: Instant) -> Wants {
        match self.full_since {
            None => Wants::Bytes(INPUT - self.waiting.len()),
            Some(since) if now.saturating_duration_since(since) >= GUEST_PATIENCE => Wants::Discard,
            Some(_) => Wants::Nothing,
        }
    }

    /// Adds input, not more than is wanted.
    pub fn push(&mut self, bytes: &[u8], now: Instant) {
        self.waiting.extend(bytes);
        if self.waiting.len() >= INPUT {
            self.full_since.get_or_insert(now);
        }
    }

    /// Returns bytes that wait; empty if none do.
    pub fn front(&self) -> &[u8] {
        self.waiting.as_slices().0
    }

    /// Notes that the guest has taken `count` bytes of [`Self::front`].
    pub fn taken(&mut self, count: usize) {
        self.waiting.drain(..count);
        if self.waiting.len() < INPUT {
            self.full_since = None;
        }
    }

    /// Returns the time from which input is discarded.
    pub fn discards_from(&self) -> Option<Instant> {
        self.full_since.map(|since| since + GUEST_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(outbox: &mut Outbox, now: Instant) -> Vec<u8> {
        let mut all = Vec::new();
        while !outbox.front().is_empty() {
            let front = outbox.front().to_vec();
            outbox.taken(front.len(), now);
            all.extend(front);
        }
        all
    }

    #[test]
    fn a_client_that_reads_gets_everything() {
        let now = Instant::now();
        let mut outbox = Outbox::new(now);
        for part in 0..1000_u32 {
            outbox.push(&part.to_be_bytes(), now);
            assert_eq!(drain(&mut outbox, now), part.to_be_bytes());
        }
        assert_eq!(outbox.stuck_at(), None);
    }

    #[test]
    fn a_slow_client_is_told_what_it_missed_and_one_that_reads_nothing_is_stuck() {
        let begin = Instant::now();
        let mut outbox = Outbox::new(begin);
        let part = vec![b'x'; 1000];
        for _ in 0..1000 {
            outbox.push(&part, begin);
        }
        assert!(outbox.waiting.len() <= MOST_WAITING);
        assert_eq!(outbox.stuck_at(), Some(begin + PATIENCE));
        let later = begin + PATIENCE / 2;
        outbox.taken(1000, later);
        assert_eq!(outbox.stuck_at(), Some(later + PATIENCE));
        outbox.push(b"still left out", later);
        let all = String::from_utf8(drain(&mut outbox, later)).unwrap();
        let missed = 1_000_000 + 14 - MOST_WAITING / 1000 * 1000;
        let notice = format!("\r\n[taut: {missed} bytes are not shown: read faster]\r\n");
        assert!(all.ends_with(&notice), "{}", &all[all.len() - 100..]);
        outbox.push(b"seen", later);
        assert_eq!((outbox.front(), outbox.stuck_at()), (&b"seen"[..], None));
    }

    #[test]
    fn input_waits_for_a_guest_that_takes_it_and_is_discarded_for_one_that_does_not() {
        let begin = Instant::now();
        let mut input = Input::default();
        assert_eq!(input.wants(begin), Wants::Bytes(INPUT));
        input.push(&[b'k'; INPUT - 1], begin);
        assert_eq!(input.wants(begin), Wants::Bytes(1));
        input.push(b"k", begin);
        assert_eq!(input.wants(begin), Wants::Nothing);
        assert_eq!(input.discards_from(), Some(begin + GUEST_PATIENCE));
        assert_eq!(input.wants(begin + GUEST_PATIENCE), Wants::Discard);
        input.taken(3);
        assert_eq!(input.wants(begin + GUEST_PATIENCE), Wants::Bytes(3));
        assert_eq!(input.discards_from(), None);
    }
}
