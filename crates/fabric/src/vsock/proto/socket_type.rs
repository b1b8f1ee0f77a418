//! The type of a socket, parsed once from the packet header.

use taut_virtq::socket_header::{SEQPACKET, STREAM};

/// Type of the two sockets of a connection (virtio 1.2, 5.10.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketType {
    /// `SOCK_STREAM`: bytes in order.
    Stream,
    /// `SOCK_SEQPACKET`: bytes in order, with the ends of messages and records.
    SeqPacket,
}

impl SocketType {
    /// Parses the header field `type`; `None` if the specification does not know the value.
    #[inline]
    pub(crate) const fn from_wire(value: u16) -> Option<Self> {
        match value {
            STREAM => Some(Self::Stream),
            SEQPACKET => Some(Self::SeqPacket),
            _ => None,
        }
    }

    /// The value of the header field `type`.
    #[inline]
    pub(crate) const fn to_wire(self) -> u16 {
        match self {
            Self::Stream => STREAM,
            Self::SeqPacket => SEQPACKET,
        }
    }
}
