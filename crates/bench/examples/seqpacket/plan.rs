//! The messages of one direction of a phase, which both ends compute from the same seed.

use std::ops::RangeInclusive;

/// Bytes of the pattern behind the longest message. Messages begin at any of these.
const STARTS: u64 = 64 << 10;

/// A generator of numbers that is the same at both ends (xorshift64*).
#[derive(Debug, Clone)]
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}

/// Random bytes, of which every message is a part.
#[derive(Debug)]
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    /// Makes a pattern for messages of up to `most` bytes.
    pub(crate) fn new(seed: u64, most: usize) -> Self {
        let mut numbers = Numbers::new(seed);
        let words = (most + STARTS as usize).div_ceil(8);
        Self((0..words).flat_map(|_| numbers.next().to_le_bytes()).collect())
    }

    /// Content of a message.
    pub(crate) fn of(&self, message: &Message) -> &[u8] {
        &self.0[message.start..][..message.len]
    }
}

/// How the receiver reads a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Into a buffer that has room for it.
    Whole,
    /// Into a buffer of this many bytes, which is too small. The rest is lost.
    Short(usize),
    /// Into a buffer of this many bytes, which is too small, with `MSG_TRUNC`: the system call
    /// returns the message's length.
    ShortWithLength(usize),
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    start: usize,
    /// Length in bytes.
    pub(crate) len: usize,
    /// A record ends with it (`MSG_EOR`).
    pub(crate) ends_record: bool,
    /// The sender passes it in this many parts.
    pub(crate) parts: usize,
    /// How the receiver reads it.
    pub(crate) reading: Reading,
}

/// All messages of one direction, in order.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    numbers: Numbers,
    lens: RangeInclusive<usize>,
    left: u64,
}

impl Plan {
    /// Plans `count` messages with these lengths, short ones more often than long ones.
    pub(crate) fn new(seed: u64, count: u64, lens: RangeInclusive<usize>) -> Self {
        Self { numbers: Numbers::new(seed), lens, left: count }
    }

    /// A length of which each power of two is as likely as the next one.
    fn len(&mut self) -> usize {
        let (least, most) = (*self.lens.start() as u64, *self.lens.end() as u64);
        let power =
            u64::from(least.ilog2()) + self.numbers.below(u64::from(most.ilog2() - least.ilog2()) + 1);
        let len = (1 << power) + self.numbers.below(1 << power);
        len.clamp(least, most) as usize
    }
}

impl Iterator for Plan {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        self.left = self.left.checked_sub(1)?;
        // The longest ones come as well, although they are rare otherwise.
        let len = match self.numbers.below(1000) {
            0 => *self.lens.end(),
            _ => self.len().min(self.len()),
        };
        let short = self.numbers.below(len as u64) as usize;
        let reading = match self.numbers.below(8) {
            0 if short > 0 => Reading::Short(short),
            1 if short > 0 => Reading::ShortWithLength(short),
            _ => Reading::Whole,
        };
        Some(Message {
            start: self.numbers.below(STARTS) as usize,
            len,
            ends_record: self.numbers.below(3) == 0,
            parts: if self.numbers.below(8) == 0 { 3 } else { 1 },
            reading,
        })
    }
}
