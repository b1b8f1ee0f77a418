//! Changes of inputs, the same in each run.

/// Longest changed input.
const MOST: usize = 2048;
/// Bytes that decide about signs, ends and quotes.
const INTERESTING: [u8; 16] =
    [0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', b'"', b'\\', b'{', b'}', b'[', b']', b',', b'-', b'9'];

/// Makes changed inputs.
pub(crate) struct Mutator(u64);

impl Mutator {
    /// Each target has changes of its own.
    pub(crate) fn new(target: &str) -> Self {
        Self(target.bytes().fold(0xcbf2_9ce4_8422_2325, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    /// A pseudo-random number below `end` (SplitMix64).
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % end as u64) as usize
    }

    /// One of the inputs with one to four changes.
    pub(crate) fn changed(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut input = inputs[self.below(inputs.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut input, inputs);
        }
        input.truncate(MOST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        if input.is_empty() {
            return input.push(self.below(256) as u8);
        }
        let at = self.below(input.len());
        let len = self.below((input.len() - at).min(32)) + 1;
        match self.below(7) {
            0 => input[at] ^= 1 << self.below(8),
            1 => input[at] = INTERESTING[self.below(INTERESTING.len())],
            2 => input[at] = self.below(256) as u8,
            3 => drop(input.drain(at..at + len)),
            4 => {
                let part = input[at..at + len].to_vec();
                input.splice(at..at, part);
            }
            5 => input.insert(at, INTERESTING[self.below(INTERESTING.len())]),
            // The end of another input.
            _ => {
                let other = &inputs[self.below(inputs.len())];
                let from = at.min(other.len());
                input.splice(at.., other[from..].iter().copied());
            }
        }
    }
}
