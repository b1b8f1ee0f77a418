//! Queue pairs: the rings of bytes in the memory that a VM shares with the fabric, for both ends.
//!
//! A VM with queue pairs has a region of memory of its own, which programs in the guest map as
//! `/dev/dax0.0`. The region consists of channels. A channel has two rings: [`Direction::Out`] from
//! the guest to the fabric, and [`Direction::In`] from the fabric to the guest. One end of a vsock
//! stream connection is attached to a channel by a control connection, whose messages are in
//! [`message`]. From then on the stream's bytes go through the rings.
//!
//! The other end may write anything into the memory at any time. Positions are therefore read once
//! and checked ([`Hostile`]), an end keeps its own positions privately, and no Rust reference to
//! shared bytes exists.
//!
//! Modules, from the bottom up; none imports from one after it in this list:
//!
//! * [`layout`]: where things are in a region. [`message`]: messages of the control connection.
//!   [`dax`]: the block from which Linux makes a device of the memory.
//! * [`memory`]: mapped memory and the channels in it; the only `unsafe` code.
//! * [`ring`]: the two ends of a ring, and how they wait for each other.
//!
//! All numbers in shared memory and in messages are little-endian.

// Words of shared memory are used as they are.
const _: () = assert!(cfg!(target_endian = "little"));

pub mod dax;
pub mod layout;
pub mod memory;
pub mod message;
pub mod ring;

pub use layout::{Direction, Geometry, Role, Word};
pub use memory::{Channel, Memory, Region};
pub use message::{AttachAnswer, AttachRequest, SERVICE_PORT, Status};
pub use ring::{Consumer, End, Ends, Hostile, Look, Producer};
