//! Bytes that depend on their position, so that a lost, repeated or moved byte is found.

/// Length of a secret.
pub(crate) const SECRET: usize = 32;
/// A text that the stream contains again and again.
pub(crate) type Secret = [u8; SECRET];
/// Distance of the places of the secret.
const BLOCK: u64 = 4096;
/// Most bytes that are made at once.
pub(crate) const PIECE: usize = 64 << 10;

/// The bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) seed: u64,
    pub(crate) secret: Option<Secret>,
}

impl Pattern {
    /// The pattern of the other direction.
    pub(crate) fn back(self) -> Self {
        Self { seed: !self.seed, ..self }
    }

    /// Makes the bytes from a position on, as many as fit.
    pub(crate) fn fill(self, from: u64, out: &mut [u8]) {
        let mut at = from;
        let end = from + out.len() as u64;
        let mut rest = &mut *out;
        let head = (8 - (at % 8) as usize) % 8;
        if head > 0 {
            let (first, more) = rest.split_at_mut(head.min(rest.len()));
            let word = self.word(at / 8).to_le_bytes();
            first.copy_from_slice(&word[8 - head..][..first.len()]);
            at += first.len() as u64;
            rest = more;
        }
        let mut index = at / 8;
        let mut words = rest.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.word(index).to_le_bytes());
            index += 1;
        }
        let tail = words.into_remainder();
        let word = self.word(index).to_le_bytes();
        tail.copy_from_slice(&word[..tail.len()]);
        if let Some(secret) = &self.secret {
            put(secret, from, end, out);
        }
    }

    /// Returns the position of the first byte that is not as it should be.
    pub(crate) fn first_wrong(self, from: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = vec![0; bytes.len()];
        self.fill(from, &mut expected);
        if expected == bytes {
            return None;
        }
        let place = expected.iter().zip(bytes).position(|(one, other)| one != other)?;
        Some(from + place as u64)
    }

    /// Eight bytes (splitmix64 of seed and index).
    fn word(self, index: u64) -> u64 {
        let mut word = self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// Puts the secret at its places between two positions.
fn put(secret: &Secret, from: u64, end: u64, out: &mut [u8]) {
    let mut block = from / BLOCK * BLOCK;
    while block < end {
        for (at, byte) in (block..).zip(secret) {
            if (from..end).contains(&at) {
                out[(at - from) as usize] = *byte;
            }
        }
        block += BLOCK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_those_of_the_whole() {
        for secret in [None, Some([7; SECRET])] {
            let pattern = Pattern { seed: 3, secret };
            let mut whole = vec![0; 9000];
            pattern.fill(0, &mut whole);
            for (from, len) in [(0, 1), (1, 3), (5, 11), (7, 8999 - 7), (4090, 40), (8191, 2), (3, 0)] {
                let mut piece = vec![0; len];
                pattern.fill(from as u64, &mut piece);
                assert_eq!(piece, whole[from..from + len], "{from}, {len}");
                assert_eq!(pattern.first_wrong(from as u64, &piece), None);
                if let Some(last) = piece.last_mut() {
                    *last ^= 1;
                    assert_eq!(pattern.first_wrong(from as u64, &piece), Some((from + len - 1) as u64));
                }
            }
        }
    }

    #[test]
    fn no_two_places_look_alike() {
        let pattern = Pattern { seed: 9, secret: None };
        let mut bytes = vec![0; 64 << 10];
        pattern.fill(0, &mut bytes);
        for shift in [1u64, 8, 4096, 1 << 16, 1 << 32] {
            assert_eq!(pattern.first_wrong(shift, &bytes[..64]), Some(shift), "{shift}");
        }
        assert!(pattern.back().first_wrong(0, &bytes[..64]).is_some());
    }
}
