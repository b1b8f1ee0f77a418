//! What can be wrong with a queue: at set-up ([`QueueError`]) and while it runs ([`RingFault`]).

use thiserror::Error;

/// Why a queue cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum QueueError {
    /// Split queues have a power of two of entries, at most 32768 (2.7).
    #[error("queue size {0} is not a power of two up to 32768")]
    Size(u16),
    /// Packed queues have 1 to 32768 entries (2.8.10.1).
    #[error("packed queue size {0} is not from 1 to 32768")]
    PackedSize(u16),
    /// A packed queue was to start where it has no descriptor.
    #[error("start at descriptor {index} in a packed queue of {size}")]
    Position {
        /// Index found.
        index: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A packed queue was to go on where it stopped, but nothing says where that was.
    #[error("where the packed queue stopped was not written down")]
    PositionUnknown,
    /// A chain of several buffers was being returned when the device end died: what it was cannot be known any more.
    #[error("the chain at descriptor {index} was being returned when its device ended")]
    Torn {
        /// Its first descriptor.
        index: u16,
    },
    /// An area does not lie in one region of the shared memory.
    #[error("{area} at front-end address {addr:#x}, {len} bytes, is not in shared memory")]
    Unmapped {
        /// Which area.
        area: &'static str,
        /// Address in the front end's address space.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// An area is not aligned as 2.7 demands.
    #[error("{area} at front-end address {addr:#x} is not aligned to {align} bytes")]
    Misaligned {
        /// Which area.
        area: &'static str,
        /// Address in the front end's address space.
        addr: u64,
        /// Alignment in bytes.
        align: u64,
    },
    /// A feature was negotiated that this kind of queue cannot have.
    #[error("{0} was negotiated, which this queue cannot have")]
    Feature(&'static str),
    /// The driver did not accept `VERSION_1`.
    #[error("legacy driver: VERSION_1 was not negotiated")]
    Legacy,
}

/// What a driver did that breaks its queue. The queue refuses to go on until it is set up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RingFault {
    /// More buffers made available than the queue has entries.
    #[error("available index jumped from {from} to {to} in a queue of {size}")]
    AvailIndexJumped {
        /// Last index that was valid.
        from: u16,
        /// Index found.
        to: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// More descriptors made available than a packed queue has entries.
    #[error("descriptor {index} made available again while the device has it, in a queue of {size}")]
    TooManyAvailable {
        /// Its index.
        index: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A chain starts outside the descriptor table.
    #[error("chain head {head} in a queue of {size}")]
    HeadOutOfRange {
        /// Index found.
        head: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A chain was made available again while the device has it.
    #[error("chain from {head} made available again while the device has it")]
    AlreadyTaken {
        /// Its head.
        head: u16,
    },
    /// A descriptor's next field points outside its table.
    #[error("next descriptor {next} in a table of {size}")]
    NextOutOfRange {
        /// Index found.
        next: u16,
        /// Entries of the table.
        size: u16,
    },
    /// A chain is longer than its table: it must contain a loop.
    #[error("descriptor loop: chain from {head} has more than {size} descriptors")]
    DescriptorLoop {
        /// Head of the chain.
        head: u16,
        /// Entries of the table.
        size: u16,
    },
    /// A chain has more parts than any frame needs.
    #[error("chain from {head} has more than {most} parts")]
    ChainTooLong {
        /// Head of the chain.
        head: u16,
        /// Most parts.
        most: usize,
    },
    /// A buffer is not, or not entirely, in guest memory.
    #[error("buffer at {addr:#x}, {len} bytes, is outside guest memory")]
    AddressOutside {
        /// Guest address.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Address plus length is beyond 2^64.
    #[error("buffer at {addr:#x}, {len} bytes, wraps around the address space")]
    AddressOverflow {
        /// Guest address.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The buffers of one chain add up to more than a frame can have.
    #[error("chain from {head} adds up to {len} bytes, most is {most}")]
    LengthOverflow {
        /// Head of the chain.
        head: u16,
        /// Sum so far in bytes.
        len: u64,
        /// Most bytes.
        most: u64,
    },
    /// A buffer without bytes.
    #[error("buffer of zero length in chain from {head}")]
    ZeroLength {
        /// Head of the chain.
        head: u16,
    },
    /// An indirect table although `INDIRECT_DESC` was not negotiated.
    #[error("indirect table in chain from {head}, but the feature was not negotiated")]
    IndirectNotNegotiated {
        /// Head of the chain.
        head: u16,
    },
    /// An indirect table within an indirect table (2.7.5.3.1).
    #[error("indirect table within an indirect table in chain from {head}")]
    NestedIndirect {
        /// Head of the chain.
        head: u16,
    },
    /// A descriptor with both INDIRECT and NEXT (2.7.5.3.1).
    #[error("descriptor with both INDIRECT and NEXT in chain from {head}")]
    IndirectWithNext {
        /// Head of the chain.
        head: u16,
    },
    /// An indirect table whose length is no multiple of a descriptor, zero, or too large.
    #[error("indirect table of {len} bytes in chain from {head}")]
    IndirectTableSize {
        /// Head of the chain.
        head: u16,
        /// Length found, in bytes.
        len: u32,
    },
    /// An indirect table that is not aligned to 8 bytes.
    #[error("indirect table at {addr:#x} in chain from {head} is not aligned to 8 bytes")]
    IndirectTableMisaligned {
        /// Head of the chain.
        head: u16,
        /// Guest address.
        addr: u64,
    },
    /// A device-writable buffer in a transmit queue.
    #[error("device-writable buffer in chain from {head} of a transmit queue")]
    WritableInTransmit {
        /// Head of the chain.
        head: u16,
    },
    /// A device-readable buffer in a receive queue.
    #[error("device-readable buffer in chain from {head} of a receive queue")]
    ReadableInReceive {
        /// Head of the chain.
        head: u16,
    },
    /// A chain that does not even hold the header.
    #[error("chain from {head} holds {len} bytes, at least {header} are needed")]
    ChainTooShort {
        /// Head of the chain.
        head: u16,
        /// Its length in bytes.
        len: u32,
        /// Bytes that it must hold: the header, and in a socket's receive buffer one more.
        header: u32,
    },
}
