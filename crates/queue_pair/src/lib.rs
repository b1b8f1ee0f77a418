//! Queue pairs: the rings of bytes in the memory that a VM shares with the fabric, for both ends.
//!
//! A VM with queue pairs has a region of memory of its own, which programs in the guest map as
//! `/dev/dax0.0`. The region consists of channels. A channel has two rings: [`Direction::Out`] from
//! the guest to the fabric, and [`Direction::In`] from the fabric to the guest. One end of a vsock
//! stream connection is attached to a channel by a control connection, whose messages are in
//! [`message`]. From then on the stream's bytes go through the rings.
//!
//! A program leaves its channel by the end of its control connection, and goes on with the stream
//! by packets. No byte is lost. Before it closes the control connection, it publishes what it has
//! written and read. What is left in its ring OUT reaches the peer before all that the program
//! sends from then on. What it has not read in its ring IN comes by packets, before all later bytes
//! of the peer. The kernel of the guest is told that the peer sends no more only once the ring IN
//! was read to its end, or left. If the program closes the stream as well, or ends, what it has not
//! read is dropped.
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
pub use ring::{Consumer, End, Ends, Hostile, Look, Private, Producer};
