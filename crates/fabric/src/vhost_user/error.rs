//! Errors of the protocol: bad messages, failed sessions and broken rings.

use std::io;

use taut_api::Bytes;
use taut_virtq::fault::{QueueError, RingFault};
use taut_virtq::memory::MemoryError;
use vhost::vhost_user::message::FrontendReq;

use super::wire::{MAX_BODY, VERSION};
use crate::net::queue::QueueIdx;

/// Reasons why a message is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The request is not one of the protocol.
    #[error("request {0} is not one of vhost-user")]
    UnknownRequest(u32),
    /// This back end does not offer the request.
    #[error("request {0:?} was not offered")]
    NotOffered(FrontendReq),
    /// The flags word is not that of a request of version 1.
    #[error("flags {0:#x} are not those of a version {VERSION} request")]
    BadFlags(u32),
    /// The body is longer than any request's.
    #[error("a body of {0} bytes was announced; at most {MAX_BODY} are accepted")]
    TooLong(u32),
    /// The body's length is not that of the request.
    #[error("the body of {request:?} has {got} bytes instead of {wanted}")]
    BadLength {
        /// The request.
        request: FrontendReq,
        /// Number of bytes received.
        got: usize,
        /// Number of bytes that the request has.
        wanted: usize,
    },
    /// The number of descriptors is not that of the request.
    #[error("{request:?} came with {got} descriptors instead of {wanted}")]
    BadDescriptors {
        /// The request.
        request: FrontendReq,
        /// Number of descriptors received.
        got: usize,
        /// Number of descriptors that the request takes.
        wanted: usize,
    },
    /// A value is out of its range.
    #[error("{request:?}: {value} is out of range")]
    OutOfRange {
        /// The request.
        request: FrontendReq,
        /// The value.
        value: u64,
    },
}

/// Reasons why a session ends.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The front end closed the connection.
    #[error("the front end closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the connection to the front end failed")]
    Socket(#[source] io::Error),
    /// A message was refused.
    #[error("the front end broke the protocol: {0}")]
    Message(#[from] MessageError),
    /// The socket has no room for a reply.
    #[error("the front end does not read its replies")]
    RepliesUnread,
    /// A message carried more descriptors than any request takes.
    #[error("the front end sent {0} descriptors in one message")]
    TooManyDescriptors(usize),
    /// The front end accepted features that were not offered.
    #[error("the front end accepted features {0:#x}, which were not offered")]
    NotOffered(u64),
    /// The device has no such queue.
    #[error("the front end named queue {queue}; this port has {queues}")]
    NoSuchQueue {
        /// Index in the request.
        queue: u32,
        /// Number of queues of the device.
        queues: usize,
    },
    /// No virtqueue can have this size.
    #[error("queue {queue} cannot have {size} entries")]
    QueueSize {
        /// The queue.
        queue: QueueIdx,
        /// Size in the request.
        size: u16,
    },
    /// No split queue can start at this position.
    #[error("queue {queue} cannot start at {base}")]
    Base {
        /// The queue.
        queue: QueueIdx,
        /// Position in the request.
        base: u32,
    },
    /// A region to be removed does not exist, or one too many was added.
    #[error("the memory region at {0:#x} cannot be added or removed")]
    Region(u64),
    /// All regions together are larger than the guest's memory.
    #[error("the front end brings {got} of guest memory; its guest has {memory}")]
    TooMuchMemory {
        /// Sum of all regions.
        got: Bytes,
        /// Memory of the guest.
        memory: Bytes,
    },
    /// The file of a region may be shortened while it is in use.
    #[error("the memory region at {0:#x} is not sealed against shrinking")]
    Unsealed(u64),
    /// A kick, call or error descriptor is something else.
    #[error("the front end sent an event descriptor that is no eventfd")]
    NotAnEventfd,
    /// Guest memory cannot be mapped.
    #[error("guest memory cannot be mapped: {0}")]
    Memory(#[from] MemoryError),
    /// An event descriptor cannot be used.
    #[error("an event descriptor cannot be used")]
    Event(#[source] io::Error),
    /// A session record and its descriptors do not belong together.
    #[error("the session to resume has {got} descriptors instead of {wanted}")]
    Record {
        /// Number of descriptors received.
        got: usize,
        /// Number of descriptors that the record names.
        wanted: usize,
    },
}

impl SessionError {
    /// Returns advice for the operator of the VM. `None` if the connection alone has failed.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Memory(_) => Some("QEMU needs memory-backend-memfd with share=on"),
            Self::Unsealed(_) => Some(
                "QEMU needs memory-backend-memfd with share=on; for a front end that taut did not start: taut \
                 port set NAME --trusted",
            ),
            Self::NotAnEventfd => {
                Some("connect QEMU 7.2 or newer, or trust the front end: taut port set NAME --trusted")
            }
            Self::TooMuchMemory { .. } => Some("restart the VM, so that its process has the configured size"),
            Self::NoSuchQueue { .. } => {
                Some("QEMU's -netdev vhost-user takes at most as many `queues` as the port has pairs")
            }
            Self::Message(_)
            | Self::RepliesUnread
            | Self::TooManyDescriptors(_)
            | Self::NotOffered(_)
            | Self::QueueSize { .. }
            | Self::Base { .. }
            | Self::Region(_) => Some("connect QEMU 7.2 or newer, or restart its VM"),
            Self::Closed | Self::Socket(_) | Self::Event(_) | Self::Record { .. } => None,
        }
    }
}

/// The fault that a guest's driver caused in a ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenRing {
    /// The ring could not be set up.
    #[error("the guest's driver set up a ring that cannot be used: {0}")]
    SetUp(#[from] QueueError),
    /// The ring broke while it was running.
    #[error("the guest's driver broke a ring: {0}")]
    Running(#[from] RingFault),
}
