//! Guest memory and virtqueues, device end and driver end.
//!
//! Everything that a guest can write at any time is accessed through this crate alone: by raw
//! pointers and atomics, never by a Rust reference. An index, a length or an address is read once,
//! checked, and only then used.
//!
//! Modules, from the bottom up; none imports from one after it in this list:
//!
//! * [`memory`]: the guest's memory, mapped from the descriptors that its front end sent.
//! * [`counters`]: words shared with other processes.
//! * [`fault`]: what a hostile or broken driver can do wrong. [`features`]: the feature bits.
//!   [`header`]: the virtio-net header. [`socket_header`]: the header of a socket device's packets.
//! * [`ring`]: the split and the packed format, for both ends, and how a queue is set up.
//! * [`driver`]: the driver end, for microguests and tests.
//! * [`device`]: the device end of a transmit or receive queue: takes bursts of checked frames,
//!   stores frames with one copy. [`device::socket`]: the same for the packets of a socket device.
//!
//! Section numbers in comments are those of the virtio specification, version 1.2.

pub mod counters;
pub mod device;
pub mod driver;
pub mod fault;
pub mod features;
pub mod header;
pub mod memory;
pub mod ring;
pub mod socket_header;

pub use device::{RxQueue, TxFrame, TxQueue};
pub use fault::{QueueError, RingFault};
pub use header::NetHeader;
pub use memory::{GuestMemory, MemoryError, RegionSpec};
pub use ring::{Part, PositionLog, QueueConfig, Start, first_position};
pub use socket_header::SocketHeader;
