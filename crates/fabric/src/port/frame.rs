//! A frame in flight, and the result of handing it to its receiver.

use taut_api::fabric::DropReason;
use taut_virtq::device::TxFrame;
use taut_virtq::fault::RingFault;
use taut_virtq::header::NetHeader;

use crate::net::ethernet::Ethernet;

/// A checked frame in flight.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The offloads that the sender left to be done.
    pub header: NetHeader,
    /// Addresses and type.
    pub ethernet: Ethernet,
    /// Length in bytes, the Ethernet header included.
    pub len: usize,
    /// The bytes.
    pub body: Body<'a>,
}

impl Frame<'_> {
    /// The first bytes, in a copy that no guest can change.
    #[inline]
    pub fn first_bytes(&self) -> &[u8] {
        match self.body {
            Body::Guest(frame) => frame.first_bytes(),
            Body::Host(bytes) => bytes,
        }
    }
}

/// Location of a frame's bytes.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// The sending guest's memory.
    Guest(&'a TxFrame<'a>),
    /// The fabric's memory.
    Host(&'a [u8]),
}

impl Body<'_> {
    /// Copies as many bytes of the frame as there is room for, and returns their number.
    pub fn copy_to(self, space: &mut [u8]) -> usize {
        match self {
            Self::Guest(frame) => frame.copy_to(space),
            Self::Host(bytes) => {
                let len = bytes.len().min(space.len());
                space[..len].copy_from_slice(&bytes[..len]);
                len
            }
        }
    }
}

/// Result of handing a frame to its receiver.
#[derive(Debug)]
pub enum Put {
    /// The receiver has the frame.
    Done,
    /// The port's shaper has the frame. It is delivered when its rate allows, or lost and counted.
    Queued,
    /// There is no room now. If that lasts, the frame is dropped for this reason.
    NotNow(DropReason),
    /// The receiver can never take the frame.
    Refused(DropReason),
    /// The receiver has stopped working.
    Failed(Failure),
}

/// Frames delivered since the last [`RxSlot::publish`](super::RxSlot::publish).
#[derive(Debug, Default, Clone, Copy)]
pub struct Fresh {
    /// Number of frames.
    pub frames: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of frames to a group address.
    pub multicast: u64,
}

/// Reasons why an end stopped working.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The guest broke its ring.
    #[error("{0}")]
    Ring(#[from] RingFault),
    /// A device or a peer is gone.
    #[error("{0}")]
    Gone(String),
}
