//! Errors of a queue: at set-up ([`QueueError`]) and while it runs ([`RingFault`]).

use thiserror::Error;

/// Reason why a queue cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum QueueError {
    /// Split queues have a power of two of entries, at most 32768 (2.7).
    #[error("queue size {0} is not a power of two up to 32768")]
    Size(u16),
    /// Packed queues have 1 to 32768 entries (2.8.10.1).
    #[error("packed queue size {0} is not from 1 to 32768")]
    PackedSize(u16),
    /// The start position of a packed queue is outside of the queue.
    #[error("start at descriptor {index} in a packed queue of {size}")]
    Position {
        /// Index found.
        index: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A packed queue is to go on where it stopped, but that position was not logged.
    #[error("the position where the packed queue stopped was not logged")]
    PositionUnknown,
    /// The device end died while it returned a chain of several buffers, whose content is now
    /// unknown.
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
    /// A feature was negotiated that this kind of queue does not support.
    #[error("{0} was negotiated, which this queue does not support")]
    Feature(&'static str),
    /// The driver did not accept `VERSION_1`.
    #[error("legacy driver: VERSION_1 was not negotiated")]
    Legacy,
}

/// Violation of the protocol by a driver. The queue stops until it is set up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RingFault {
    /// The driver made more buffers available than the queue has entries.
    #[error("available index jumped from {from} to {to} in a queue of {size}")]
    AvailIndexJumped {
        /// Last index that was valid.
        from: u16,
        /// Index found.
        to: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// The driver made more descriptors available than the packed queue has entries.
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
    /// The driver made a chain available again while the device has it.
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
    /// A chain is longer than its table, so it contains a loop.
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
    /// A buffer has no bytes.
    #[error("buffer of zero length in chain from {head}")]
    ZeroLength {
        /// Head of the chain.
        head: u16,
    },
    /// The driver used an indirect table although `INDIRECT_DESC` was not negotiated.
    #[error("indirect table in chain from {head}, but the feature was not negotiated")]
    IndirectNotNegotiated {
        /// Head of the chain.
        head: u16,
    },
    /// An indirect table contains another indirect table (2.7.5.3.1).
    #[error("indirect table within an indirect table in chain from {head}")]
    NestedIndirect {
        /// Head of the chain.
        head: u16,
    },
    /// A descriptor has both INDIRECT and NEXT (2.7.5.3.1).
    #[error("descriptor with both INDIRECT and NEXT in chain from {head}")]
    IndirectWithNext {
        /// Head of the chain.
        head: u16,
    },
    /// The length of an indirect table is zero, too large, or not a multiple of a descriptor.
    #[error("indirect table of {len} bytes in chain from {head}")]
    IndirectTableSize {
        /// Head of the chain.
        head: u16,
        /// Length found, in bytes.
        len: u32,
    },
    /// An indirect table is not aligned to 8 bytes.
    #[error("indirect table at {addr:#x} in chain from {head} is not aligned to 8 bytes")]
    IndirectTableMisaligned {
        /// Head of the chain.
        head: u16,
        /// Guest address.
        addr: u64,
    },
    /// A transmit queue has a buffer that the device is to write.
    #[error("device-writable buffer in chain from {head} of a transmit queue")]
    WritableInTransmit {
        /// Head of the chain.
        head: u16,
    },
    /// A receive queue has a buffer that the device is to read.
    #[error("device-readable buffer in chain from {head} of a receive queue")]
    ReadableInReceive {
        /// Head of the chain.
        head: u16,
    },
    /// A chain is shorter than a header.
    #[error("chain from {head} holds {len} bytes, at least {header} are needed")]
    ChainTooShort {
        /// Head of the chain.
        head: u16,
        /// Its length in bytes.
        len: u32,
        /// Least length in bytes: the header, and in a socket's receive buffer one byte more.
        header: u32,
    },
}
