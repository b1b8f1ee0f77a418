//! The rest of a direction, which another program or process may send.

use std::io::Result;
use std::process::ExitCode;

use crate::c_calls::writer;
use crate::pattern::{Pattern, SECRET};

/// The bytes of a pattern between two positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) pattern: Pattern,
    pub(crate) from: u64,
    pub(crate) end: u64,
}

/// Length of an encoded rest.
pub(crate) const LEN: usize = 3 * 8 + 1 + SECRET;

impl Rest {
    /// Writes the bytes to a descriptor.
    pub(crate) fn write(self, fd: i32) -> Result<()> {
        crate::transfer::write(&mut *writer(fd), self.pattern, self.from, self.end)
    }

    pub(crate) fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        for (at, number) in [self.pattern.seed, self.from, self.end].into_iter().enumerate() {
            bytes[8 * at..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[24] = u8::from(self.pattern.secret.is_some());
        bytes[25..].copy_from_slice(&self.pattern.secret.unwrap_or_default());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; LEN]) -> Self {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
        let secret = (bytes[24] == 1).then(|| std::array::from_fn(|byte| bytes[25 + byte]));
        Self { pattern: Pattern { seed: number(0), secret }, from: number(1), end: number(2) }
    }

    /// Words of a command line: `rest FD HEX`.
    pub(crate) fn words(self, fd: i32) -> [String; 3] {
        let mut hex = String::with_capacity(2 * LEN);
        for byte in self.to_bytes() {
            hex += &format!("{byte:02x}");
        }
        ["rest".to_owned(), fd.to_string(), hex]
    }

    fn of_words(words: &[String]) -> Option<(i32, Self)> {
        let [fd, hex] = words else { return None };
        let mut bytes = [0; LEN];
        if hex.len() != 2 * LEN {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some((fd.parse().ok()?, Self::from_bytes(&bytes)))
    }
}

/// Writes the rest that the command line names. The program that started this one has left it the
/// descriptor.
pub(crate) fn run(words: &[String]) -> ExitCode {
    match Rest::of_words(words).map(|(fd, rest)| rest.write(fd)) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("the next program cannot write: {error}");
            ExitCode::FAILURE
        }
        None => ExitCode::from(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_read_as_written() {
        for secret in [None, Some([9; SECRET])] {
            let rest = Rest { pattern: Pattern { seed: 77, secret }, from: 5, end: 1 << 50 };
            let words = rest.words(12);
            assert_eq!(Rest::of_words(&words[1..]), Some((12, rest)));
            assert_eq!(Rest::of_words(&words[2..]), None);
        }
    }
}
