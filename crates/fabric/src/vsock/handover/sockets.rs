//! Numbers of the Unix sockets, and of files in memory, that one fabric hands to the next.

use taut_api::fabric::PortId;

use crate::vsock::proto::ConnId;

/// In the number of a client's socket; the rest is the number of the device.
const CLIENT: u32 = 1 << 31;

/// The number of the file with the payload that was copied out of rings.
const SPILLS: u32 = 1 << 30;

/// The number of the file with the state of queue pairs.
const QUEUE_PAIRS: u32 = 1 << 29;

/// The number of the file with payload for programs on the host. An older fabric, which never
/// copies such payload, takes it for a connection that it does not know, and resets those that lack
/// their payload then.
const SPILLS_TO_HOST: u32 = 1 << 28;

/// Owner of a socket that is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandedOver {
    /// A connection with the host.
    Stream(ConnId),
    /// A client of this device's guest that has not named its port.
    Client(PortId),
    /// All connections: a file with the payload for guests that was copied out of rings.
    Spills,
    /// All connections: a file with the payload for programs on the host that was copied out of
    /// rings.
    SpillsToHost,
    /// All connections: a file with the state of queue pairs.
    QueuePairs,
}

impl HandedOver {
    pub(crate) fn to_number(self) -> u32 {
        match self {
            Self::Stream(id) => id.0,
            Self::Spills => SPILLS,
            Self::SpillsToHost => SPILLS_TO_HOST,
            Self::QueuePairs => QUEUE_PAIRS,
            Self::Client(device) => CLIENT | u32::from(device.0),
        }
    }

    pub(crate) fn from_number(number: u32) -> Self {
        if number == SPILLS {
            Self::Spills
        } else if number == SPILLS_TO_HOST {
            Self::SpillsToHost
        } else if number == QUEUE_PAIRS {
            Self::QueuePairs
        } else if number & CLIENT == 0 {
            Self::Stream(ConnId(number))
        } else {
            Self::Client(PortId((number & !CLIENT) as u16))
        }
    }
}
