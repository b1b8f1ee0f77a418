//! The words of a channel, and who writes them.

use std::fmt;

/// Direction of a ring's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the guest to the fabric.
    Out,
    /// From the fabric to the guest.
    In,
}

/// The two parties that have the memory mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A program in the guest: produces [`Direction::Out`], consumes [`Direction::In`].
    Guest,
    /// The fabric: produces [`Direction::In`], consumes [`Direction::Out`].
    Fabric,
}

impl Role {
    /// The direction of the ring that this party writes bytes into.
    pub const fn produces(self) -> Direction {
        match self {
            Self::Guest => Direction::Out,
            Self::Fabric => Direction::In,
        }
    }

    /// The direction of the ring that this party takes bytes out of.
    pub const fn consumes(self) -> Direction {
        self.other().produces()
    }

    /// The other party.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Guest => Self::Fabric,
            Self::Fabric => Self::Guest,
        }
    }
}

/// One of the words of a channel. Each word is a `u32` alone in a cache line of 64 bytes and has
/// one writer. The discriminant is its offset in the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Word {
    /// Bytes that the guest has written into OUT, modulo 2^32. Written by the guest.
    OutHead = 0x000,
    /// Bytes that the fabric has taken out of OUT, modulo 2^32. Written by the fabric.
    OutTail = 0x040,
    /// Number of the guest's wait for room in OUT; odd while it waits. Written by the guest.
    OutRoomWait = 0x080,
    /// Number of the fabric's wait for bytes in OUT; odd while it waits. Written by the fabric.
    OutBytesWait = 0x0c0,
    /// Bytes that the fabric has written into IN, modulo 2^32. Written by the fabric.
    InHead = 0x100,
    /// Bytes that the guest has taken out of IN, modulo 2^32. Written by the guest.
    InTail = 0x140,
    /// Number of the fabric's wait for room in IN; odd while it waits. Written by the fabric.
    InRoomWait = 0x180,
    /// Number of the guest's wait for bytes in IN; odd while it waits. Written by the guest.
    InBytesWait = 0x1c0,
    /// Whether bytes follow those in OUT: 0 or 1. Written by the guest.
    OutEnd = 0x200,
    /// Whether bytes follow those in IN: 0, 1 or 2. Written by the fabric.
    InEnd = 0x240,
}

impl Word {
    /// All words, in the order of their offsets.
    pub const ALL: [Self; 10] = [
        Self::OutHead,
        Self::OutTail,
        Self::OutRoomWait,
        Self::OutBytesWait,
        Self::InHead,
        Self::InTail,
        Self::InRoomWait,
        Self::InBytesWait,
        Self::OutEnd,
        Self::InEnd,
    ];

    /// The ring that the word belongs to.
    pub const fn direction(self) -> Direction {
        match self {
            Self::OutHead | Self::OutTail | Self::OutRoomWait | Self::OutBytesWait | Self::OutEnd => {
                Direction::Out
            }
            Self::InHead | Self::InTail | Self::InRoomWait | Self::InBytesWait | Self::InEnd => Direction::In,
        }
    }

    /// Offset of the word in its channel, in bytes.
    pub const fn offset(self) -> usize {
        self as u32 as usize
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Out => "from the guest",
            Self::In => "to the guest",
        })
    }
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Out, Self::In];

    /// The word with the producer's position.
    pub const fn head(self) -> Word {
        match self {
            Self::Out => Word::OutHead,
            Self::In => Word::InHead,
        }
    }

    /// The word with the consumer's position.
    pub const fn tail(self) -> Word {
        match self {
            Self::Out => Word::OutTail,
            Self::In => Word::InTail,
        }
    }

    /// The word by which the producer waits for room.
    pub const fn room_wait(self) -> Word {
        match self {
            Self::Out => Word::OutRoomWait,
            Self::In => Word::InRoomWait,
        }
    }

    /// The word by which the consumer waits for bytes.
    pub const fn bytes_wait(self) -> Word {
        match self {
            Self::Out => Word::OutBytesWait,
            Self::In => Word::InBytesWait,
        }
    }

    /// The word by which the producer says that no more bytes follow.
    pub const fn end(self) -> Word {
        match self {
            Self::Out => Word::OutEnd,
            Self::In => Word::InEnd,
        }
    }
}
