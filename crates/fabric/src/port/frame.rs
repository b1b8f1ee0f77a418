//! A frame on its way, and what can become of it at its receiver.

use taut_api::fabric::DropReason;
use taut_virtq::device::TxFrame;
use taut_virtq::fault::RingFault;
use taut_virtq::header::NetHeader;

use crate::net::ethernet::Ethernet;

/// A frame on its way, checked.
#[derive(Debug)]
pub struct Frame<'a> {
    /// What the sender left to be done.
    pub header: NetHeader,
    /// Addresses and type.
    pub ethernet: Ethernet,
    /// Bytes, from the Ethernet header on.
    pub len: usize,
    /// The bytes.
    pub body: Body<'a>,
}

impl Frame<'_> {
    /// Its first bytes, where no guest can change them.
    #[inline]
    pub fn first_bytes(&self) -> &[u8] {
        match self.body {
            Body::Guest(frame) => frame.first_bytes(),
            Body::Host(bytes) => bytes,
        }
    }
}

/// Where a frame's bytes are.
#[derive(Debug)]
pub enum Body<'a> {
    /// In the sending guest's memory.
    Guest(&'a TxFrame<'a>),
    /// In ours.
    Host(&'a [u8]),
}

/// What became of a frame at its receiver.
#[derive(Debug)]
pub enum Put {
    /// It is there.
    Done,
    /// It has been taken, and will be there when its rate allows; or it will have been lost, and counted.
    Queued,
    /// It cannot be taken now, and will have been dropped for this reason if that lasts.
    NotNow(DropReason),
    /// It can never be taken.
    Refused(DropReason),
    /// The receiver can take nothing any more.
    Failed(Failure),
}

/// Frames delivered since the last [`RxSlot::publish`](super::RxSlot::publish).
#[derive(Debug, Default, Clone, Copy)]
pub struct Fresh {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
    /// Frames to a group address.
    pub multicast: u64,
}

/// Why an end stopped working.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The guest broke its ring.
    #[error("{0}")]
    Ring(#[from] RingFault),
    /// A device or a peer is gone.
    #[error("{0}")]
    Gone(String),
}
