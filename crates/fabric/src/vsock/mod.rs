//! vsock: connections between guests, and between guests and the host (spec rows `VC-1` to `VC-5`;
//! users know them as VMCI sockets).
//!
//! The fabric is the device end of the guests' virtio-vsock devices. One thread serves all of them.
//! The thread copies a packet from the sender's transmit ring into the receiver's buffers. Packets
//! that cannot be handed over yet stay in the sender's ring. If they crowd it, they are copied out,
//! within bounds (`engine/spill.rs`). Packets are given back to their sender in any order.
//!
//! The folders are layers. None imports from one after it in this list:
//!
//! * [`proto`]: the protocol as a pure state machine.
//! * [`guest`]: guests' devices and their rings.
//! * [`host`]: Unix sockets on the host.
//! * [`queue_pair`]: regions of guests, whose rings carry payload instead of packets.
//! * [`sched`]: turns of flows, merging, deferred news, polling.
//! * [`handover`]: what one fabric leaves to the next.
//! * [`engine`]: owns all of them. [`engine::path`] is the path of a byte, top to bottom.
//!
//! On top of the layers are the thread ([`thread`]), the handle of the control thread ([`handle`]),
//! and the devices as front ends' sessions drive them ([`device`]).

mod device;
mod engine;
mod guest;
mod handle;
mod handover;
mod host;
mod proto;
mod queue_pair;
#[cfg(any(test, feature = "rig"))]
pub mod rig;
mod sched;
#[cfg(test)]
mod tests;
mod thread;

pub use engine::VsockEvent;
pub use handle::VsockHandle;
pub use queue_pair::{RegionPlace, RegionRefused};
