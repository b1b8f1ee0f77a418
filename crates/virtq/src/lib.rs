//! Guest memory and virtqueues, device end and driver end.
//!
//! Everything that a guest can write at any time is reached through this crate and nowhere else: by raw pointers and
//! atomics, never by a Rust reference. An index, a length or an address is read once, checked, and only then used.
//!
//! * [`memory`]: the guest's memory, mapped from the descriptors that its front end sent.
//! * [`device`]: the device end of a transmit or receive queue: bursts of checked frames out, one copy in. In it, [`device::socket`]:
//!   the same for the packets of a socket device.
//! * [`driver`]: the driver end, for microguests and tests.
//! * [`header`]: the virtio-net header. [`socket_header`]: that of a socket device's packets. [`features`]: the feature bits.
//! * [`fault`]: what a hostile or broken driver can do wrong.
//! * [`counters`]: words shared with other processes.
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
