//! The bytes of checked streams: a fixed pattern, so that both ends know the byte at each position.

use std::sync::LazyLock;

use crate::wire::MAX_SIZE;

/// Length of the pattern. A prime: no block that is lost or repeated on the way has whole periods.
const PERIOD: usize = 65_521;

/// One period, followed by as many bytes as the longest piece has.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    // The upper bits of a linear congruential generator have no short period.
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let mut bytes: Vec<u8> = (0..PERIOD).map(|_| next()).collect();
    for at in 0..MAX_SIZE as usize {
        bytes.push(bytes[at]);
    }
    bytes
});

/// Returns `len` bytes of the stream from `position` on, at most [`MAX_SIZE`].
#[inline]
pub fn bytes(position: u64, len: usize) -> &'static [u8] {
    let at = (position % PERIOD as u64) as usize;
    &BYTES[at..at + len.min(MAX_SIZE as usize)]
}

/// Counts the bytes of a stream before the first wrong one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checked {
    right: u64,
    broken: bool,
}

impl Checked {
    /// Compares the next bytes of the stream.
    #[inline]
    pub fn came(&mut self, mut piece: &[u8]) {
        while !self.broken && !piece.is_empty() {
            let wanted = bytes(self.right, piece.len());
            let (now, later) = piece.split_at(wanted.len());
            if now == wanted {
                self.right += now.len() as u64;
                piece = later;
            } else {
                self.right +=
                    now.iter().zip(wanted).take_while(|(came, wanted)| came == wanted).count() as u64;
                self.broken = true;
            }
        }
    }

    /// Returns the number of right bytes.
    #[inline]
    pub fn right(&self) -> u64 {
        self.right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(from: u64, len: usize) -> Vec<u8> {
        (from..from + len as u64).map(|at| bytes(at, 1)[0]).collect()
    }

    #[test]
    fn a_stream_is_right_in_pieces_of_any_size() {
        let all = stream(0, 200_000);
        assert_eq!(bytes(65_000, 1000), &all[65_000..66_000]);
        for piece in [1, 1000, 65_521, 200_000] {
            let mut checked = Checked::default();
            all.chunks(piece).for_each(|piece| checked.came(piece));
            assert_eq!(checked.right(), 200_000);
        }
        let mut long = Checked::default();
        long.came(&stream(0, 3 << 20));
        assert_eq!(long.right(), 3 << 20);
    }

    #[test]
    fn counting_stops_at_the_first_wrong_lost_or_repeated_byte() {
        let mut all = stream(0, 100_000);
        all[70_123] ^= 1;
        let mut checked = Checked::default();
        all.chunks(4096).for_each(|piece| checked.came(piece));
        assert_eq!(checked.right(), 70_123);
        for again in [0, 4096, 65_536, 131_072] {
            let mut checked = Checked::default();
            checked.came(&stream(0, 100_000));
            checked.came(&stream(if again == 0 { 104_052 } else { 100_000 - again.min(100_000) }, 200_000));
            assert!((100_000..100_100).contains(&checked.right()), "{again}: {}", checked.right());
        }
    }
}
