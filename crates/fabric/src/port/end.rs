//! Ends: what can be attached to a queue.

use super::frame::{Frame, Put};
use super::{packet, stream, tap, vnic, xdp};
use crate::net::software_offload::Offloads;

/// The source of a transmit queue's frames.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the fast path, which must not follow another pointer"
)]
pub enum TxEnd {
    /// A guest's transmit ring.
    Vnic(vnic::Tx),
    /// A TAP device.
    Tap(tap::Tx),
    /// An emulated card's stream.
    Stream(stream::Tx),
    /// A card of the host.
    Packet(packet::Tx),
    /// A card of the host without offloads.
    Xdp(xdp::Tx),
}

impl TxEnd {
    /// Tells whether a card of the host has a frame, or has failed. It takes no system call.
    pub fn has_frame(&mut self) -> bool {
        match self {
            Self::Packet(end) => end.has_frame(),
            Self::Xdp(end) => end.has_frame(),
            Self::Vnic(_) | Self::Tap(_) | Self::Stream(_) => false,
        }
    }
}

/// The destination of a receive queue's frames.
#[derive(Debug)]
pub enum RxEnd {
    /// A guest's receive ring.
    Vnic(vnic::Rx),
    /// A TAP device.
    Tap(tap::Rx),
    /// An emulated card's stream.
    Stream(stream::Rx),
    /// A card of the host.
    Packet(packet::Rx),
    /// A card of the host without offloads.
    Xdp(xdp::Rx),
}

impl RxEnd {
    /// The offloads that the end accepts.
    #[inline]
    pub fn offloads(&self) -> Offloads {
        match self {
            Self::Vnic(end) => end.offloads,
            Self::Tap(end) => end.offloads,
            Self::Stream(_) | Self::Xdp(_) => Offloads::NONE,
            Self::Packet(end) => end.offloads,
        }
    }

    /// Hands over a frame whose offloads the end accepts.
    #[inline]
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        match self {
            Self::Vnic(end) => end.put(frame),
            Self::Tap(end) => end.put(frame),
            Self::Stream(end) => end.put(frame),
            Self::Packet(end) => end.put(frame),
            Self::Xdp(end) => end.put(frame),
        }
    }

    /// Hands over a finished frame: one without offloads.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        match self {
            Self::Vnic(end) => end.put_bytes(bytes),
            Self::Tap(end) => end.put_bytes(bytes),
            Self::Stream(end) => end.put_bytes(bytes),
            Self::Packet(end) => end.put_bytes(bytes),
            Self::Xdp(end) => end.put_bytes(bytes),
        }
    }
}
