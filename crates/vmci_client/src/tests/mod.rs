//! Tests with a fabric of their own.

mod attach;
mod end;
mod ends;
mod fabric;
mod hostile;
mod outside;
mod streams;
mod wake_ups;

use std::sync::LazyLock;
use std::time::Duration;

/// Calls sleep at once instead of looking at the ring first.
const NEVER: Duration = Duration::ZERO;
/// The time of [`Options::default`](crate::Options).
const USUAL: Duration = Duration::from_micros(50);

/// Pseudo-random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A length from 1 to `most`; each power of two is about as likely as another.
    fn len(&mut self, most: usize) -> usize {
        let bits = self.next() % (u64::from(most.ilog2()) + 1);
        (self.next() as usize % (2 << bits)).clamp(1, most)
    }
}

/// Bytes after which a stream begins again. A prime, so that no buffer is a multiple.
const PERIOD: usize = 65_521;
/// Most bytes of one call: more than a ring has.
const MOST: usize = 100 << 10;

/// `len` bytes of a stream, at most [`MOST`], from a position on.
fn bytes(stream: u64, position: u64, len: usize) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut random = Random(1);
        let mut bytes: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
        bytes.extend_from_within(..);
        bytes.extend_from_within(..MOST);
        bytes
    });
    let at = ((position + stream * 1000) % PERIOD as u64) as usize;
    &BYTES[at..at + len]
}

/// Checks the bytes from a position of a stream on.
fn check(stream: u64, position: u64, got: &[u8]) {
    assert!(got == bytes(stream, position, got.len()), "bytes from {position} on of stream {stream}");
}
