//! vhost-user, the border between a guest and the data plane: requests ([`message`]), the socket ([`connection`]), the state that
//! they build up ([`session`]) and what it drives ([`device`]).

pub mod base;
mod connection;
pub mod device;
pub mod features;
pub mod message;
pub mod session;

use std::io;

use taut_virtq::memory::MemoryError;

pub use connection::Connection;
pub use device::Device;
pub use message::{MessageError, Request};
pub use session::Session;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The front end closed the connection.
    #[error("the front end closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the connection to the front end failed")]
    Socket(#[source] io::Error),
    /// A message was not understood.
    #[error("the front end broke the protocol: {0}")]
    Message(#[from] MessageError),
    /// Replies pile up.
    #[error("the front end does not read its replies")]
    RepliesUnread,
    /// More descriptors than any message carries.
    #[error("the front end sent {0} descriptors in one message")]
    TooManyDescriptors(usize),
    /// Features that were not offered.
    #[error("the front end accepted features {0:#x}, which were not offered")]
    NotOffered(u64),
    /// There is no such queue.
    #[error("the front end named queue {queue}; this port has {queues}")]
    NoSuchQueue {
        /// Index asked for.
        queue: usize,
        /// Queues that the port has.
        queues: usize,
    },
    /// A queue size that no virtqueue has.
    #[error("queue {queue} cannot have {size} entries")]
    QueueSize {
        /// Queue index.
        queue: usize,
        /// Entries asked for.
        size: u16,
    },
    /// A position that no split queue has.
    #[error("queue {queue} cannot start at {base}")]
    Base {
        /// Queue index.
        queue: usize,
        /// Position asked for.
        base: u32,
    },
    /// A region to be removed is not there, or one too many was added.
    #[error("the memory region at {0:#x} cannot be added or removed")]
    Region(u64),
    /// Guest memory cannot be used.
    #[error("guest memory cannot be mapped: {0}; is it shared (memory-backend-memfd with share=on)?")]
    Memory(#[from] MemoryError),
    /// An event descriptor cannot be used.
    #[error("an event descriptor cannot be used")]
    Event(#[source] io::Error),
    /// A record and its descriptors do not belong together.
    #[error("the session to go on with has {got} descriptors instead of {wanted}")]
    Record {
        /// Descriptors received.
        got: usize,
        /// Descriptors that the record names.
        wanted: usize,
    },
}
