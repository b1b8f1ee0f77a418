//! What can be attached to a queue: a guest's ring, a TAP device or an emulated card's stream.

use super::frame::{Frame, Put};
use super::{stream, tap, vnic};
use crate::net::software_offload::Offloads;

/// The end from which frames come.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the fast one: no pointer to follow on its way"
)]
pub enum TxEnd {
    /// A guest's transmit ring.
    Vnic(vnic::Tx),
    /// A TAP device.
    Tap(tap::Tx),
    /// An emulated card's stream.
    Stream(stream::Tx),
}

/// The end to which frames go.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the fast one: no pointer to follow on its way"
)]
pub enum RxEnd {
    /// A guest's receive ring.
    Vnic(vnic::Rx),
    /// A TAP device.
    Tap(tap::Rx),
    /// An emulated card's stream.
    Stream(stream::Rx),
}

impl RxEnd {
    /// What it takes without help.
    #[inline]
    pub fn offloads(&self) -> Offloads {
        match self {
            Self::Vnic(end) => end.offloads,
            Self::Tap(end) => end.offloads,
            Self::Stream(_) => Offloads::NONE,
        }
    }

    /// Hands over a frame as it is.
    #[inline]
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        match self {
            Self::Vnic(end) => end.put(frame),
            Self::Tap(end) => end.put(frame),
            Self::Stream(end) => end.put(frame),
        }
    }

    /// Hands over a finished frame.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        match self {
            Self::Vnic(end) => end.put_bytes(bytes),
            Self::Tap(end) => end.put_bytes(bytes),
            Self::Stream(end) => end.put_bytes(bytes),
        }
    }
}
