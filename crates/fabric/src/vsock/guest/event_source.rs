//! Sources of the thread's events, and the tokens by which epoll tells them apart.

use crate::vsock::proto::{ConnId, GuestIdx};

/// Source of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSource {
    /// The control thread has changed something.
    Waker,
    /// The thread's timer has ended.
    Timer,
    /// A guest kicked its transmit ring: it has sent packets.
    TransmitKick(GuestIdx),
    /// A guest kicked its receive ring: it has provided buffers.
    ReceiveKick(GuestIdx),
    /// A client waits at a guest's listening socket on the host.
    Listener(GuestIdx),
    /// A client that has not named its port yet has sent something.
    Client(u32),
    /// The host's socket of a connection is readable or writable.
    Stream(ConnId),
}

/// The number of a token, in its lower half; the kind of the source is in the upper half.
const NUMBER: u64 = u32::MAX as u64;

impl EventSource {
    /// The source's token.
    pub(crate) const fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::Waker => (1, 0),
            Self::TransmitKick(GuestIdx(guest)) => (2, guest),
            Self::ReceiveKick(GuestIdx(guest)) => (3, guest),
            Self::Listener(GuestIdx(guest)) => (4, guest),
            Self::Client(client) => (5, client),
            Self::Stream(ConnId(connection)) => (6, connection),
            Self::Timer => (7, 0),
        };
        kind << 32 | number as u64
    }

    /// The source of a token.
    pub(crate) const fn from_token(token: u64) -> Option<Self> {
        let number = (token & NUMBER) as u32;
        match token >> 32 {
            1 => Some(Self::Waker),
            2 => Some(Self::TransmitKick(GuestIdx(number))),
            3 => Some(Self::ReceiveKick(GuestIdx(number))),
            4 => Some(Self::Listener(GuestIdx(number))),
            5 => Some(Self::Client(number)),
            6 => Some(Self::Stream(ConnId(number))),
            7 => Some(Self::Timer),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_source() {
        for source in [
            EventSource::Waker,
            EventSource::Timer,
            EventSource::TransmitKick(GuestIdx(u32::MAX)),
            EventSource::ReceiveKick(GuestIdx(0)),
            EventSource::Listener(GuestIdx(7)),
            EventSource::Client(u32::MAX),
            EventSource::Stream(ConnId(1)),
        ] {
            assert_eq!(EventSource::from_token(source.token()), Some(source));
        }
        assert_eq!(EventSource::from_token(9 << 32), None);
    }
}
