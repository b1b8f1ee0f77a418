//! What the words of the other side say, checked.

use thiserror::Error;

use crate::layout::{Direction, Word};

/// Whether bytes follow those that are in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// More bytes may follow.
    Open,
    /// The bytes that are in the ring are the last ones.
    Finished,
    /// The connection was reset. Only the fabric says so.
    Reset,
}

impl End {
    /// The value of the word.
    pub const fn number(self) -> u32 {
        match self {
            Self::Open => 0,
            Self::Finished => 1,
            Self::Reset => 2,
        }
    }

    /// Reads the value of the word of a ring.
    pub(super) fn read(value: u32, direction: Direction) -> Result<Self, Hostile> {
        match (value, direction) {
            (0, _) => Ok(Self::Open),
            (1, _) => Ok(Self::Finished),
            (2, Direction::In) => Ok(Self::Reset),
            _ => Err(Hostile::End { direction, value }),
        }
    }
}

/// The words of a ring contradict the protocol. The connection is to be reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Hostile {
    /// The positions are further apart than the ring is long.
    #[error(
        "positions {head} (written) and {tail} (taken) of the ring {direction} are not possible in \
         a ring of {size} bytes"
    )]
    Positions {
        /// The ring.
        direction: Direction,
        /// Position of the producer.
        head: u32,
        /// Position of the consumer.
        tail: u32,
        /// Length of the ring in bytes.
        size: u32,
    },
    /// The end word has a value without meaning.
    #[error("the end word of the ring {direction} is {value}, which has no meaning")]
    End {
        /// The ring.
        direction: Direction,
        /// Value found.
        value: u32,
    },
    /// A word that only this side writes has another value than this side has written.
    #[error("the word {word} is {found} instead of {written}: a program of the guest has overwritten it")]
    Overwritten {
        /// The word.
        word: Word,
        /// Value that this side has written last.
        written: u32,
        /// Value found.
        found: u32,
    },
}

impl Hostile {
    /// The ring whose words are wrong.
    pub const fn direction(self) -> Direction {
        match self {
            Self::Positions { direction, .. } | Self::End { direction, .. } => direction,
            Self::Overwritten { word, .. } => word.direction(),
        }
    }
}

/// Number of bytes in a ring, if its positions are possible.
#[inline]
pub(super) fn used(direction: Direction, head: u32, tail: u32, size: u32) -> Result<u32, Hostile> {
    let used = head.wrapping_sub(tail);
    if used > size { Err(Hostile::Positions { direction, head, tail, size }) } else { Ok(used) }
}

/// Checks that a word has the value that its only writer has written last.
pub(super) fn unchanged(word: Word, written: u32, found: u32) -> Result<(), Hostile> {
    if found == written { Ok(()) } else { Err(Hostile::Overwritten { word, written, found }) }
}
