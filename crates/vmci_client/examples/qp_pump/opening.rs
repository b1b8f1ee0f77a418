//! What the client tells the server first, and the server's report at the end of a stream.

use std::io::{self, Read, Write};

use crate::line::Kind;

/// What the client wants.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// Bytes, which the server counts.
    Stream,
    /// Bytes, which the server counts and checks.
    CheckedStream,
    /// Messages, which the server returns.
    Rr,
}

/// First message of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) wanted: Wanted,
    /// Bytes of a message.
    pub(crate) size: u32,
}

impl Opening {
    pub(crate) fn write(self, mut to: impl Write) -> io::Result<()> {
        let wanted = match self.wanted {
            Wanted::Stream => 0u32,
            Wanted::CheckedStream => 1,
            Wanted::Rr => 2,
        };
        to.write_all(&[wanted.to_le_bytes(), self.size.to_le_bytes()].concat())
    }

    pub(crate) fn read(mut from: impl Read) -> io::Result<Self> {
        let mut words = [[0; 4]; 2];
        from.read_exact(words.as_flattened_mut())?;
        let [wanted, size] = words.map(u32::from_le_bytes);
        let wanted = match wanted {
            0 => Wanted::Stream,
            1 => Wanted::CheckedStream,
            2 => Wanted::Rr,
            other => return Err(io::Error::other(format!("a client wants {other}"))),
        };
        Ok(Self { wanted, size })
    }
}

/// The server's report, the last message of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    /// Bytes of the stream that were read.
    pub(crate) bytes: u64,
    /// How the bytes of the server's end went.
    pub(crate) kind: Kind,
}

impl Report {
    pub(crate) fn write(self, mut to: impl Write) -> io::Result<()> {
        to.write_all(&[self.bytes.to_le_bytes(), (self.kind as u64).to_le_bytes()].concat())
    }

    pub(crate) fn read(mut from: impl Read) -> io::Result<Self> {
        let mut words = [[0; 8]; 2];
        from.read_exact(words.as_flattened_mut())?;
        let [bytes, kind] = words.map(u64::from_le_bytes);
        let kind = Kind::ALL.into_iter().find(|known| *known as u64 == kind);
        Ok(Self { bytes, kind: kind.ok_or_else(|| io::Error::other("a report without a meaning"))? })
    }
}

/// Bytes after which a checked stream begins again. A prime, so that no buffer is a multiple.
const PERIOD: usize = 65_521;

/// Bytes of a checked stream, from which [`Pattern::from`] borrows.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    /// A pattern for parts of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        let byte = |at: usize| ((at % PERIOD).wrapping_mul(0x9e37_79b1) >> 13) as u8;
        Self((0..PERIOD + most).map(byte).collect())
    }

    /// `len` bytes of the stream from a position on.
    pub(crate) fn from(&self, position: u64, len: usize) -> &[u8] {
        let at = (position % PERIOD as u64) as usize;
        &self.0[at..at + len]
    }
}
