//! The device end of virtqueues, as a switch needs it: frames out of a transmit queue in bursts, frames into a receive
//! queue with one copy.
//!
//! Nothing here allocates per frame, takes a lock or enters the kernel (except [`TxFrame::write_to`]). A queue belongs
//! to one thread at a time.
//!
//! # A burst
//! 1. [`TxQueue::peek`] checks up to [`BURST`] frames and copies their first bytes; decisions are made on that copy.
//! 2. [`RxQueue::deliver_run`] at the receiver of several frames in a row; [`RxQueue::deliver`] for a frame that it leaves
//!    over. [`Delivery::Full`] changes nothing; the frame may wait where it is.
//! 3. [`RxQueue::publish`] once per receiver, [`TxQueue::complete`] once for the frames that are done.
//! 4. [`RxQueue::needs_interrupt`], [`TxQueue::needs_interrupt`].
//!
//! # Sleeping
//! `arm_kicks` asks the driver for a kick at the next buffer, and tells whether one came in between: then look again
//! instead of sleeping. `suspend_kicks` is for while somebody looks anyway.

mod chain;
mod packed;
mod position_log;
mod ring;
mod rx;
pub mod socket;
mod split;
mod tx;

pub use position_log::PositionLog;
pub use rx::{Delivery, Run, RxQueue};
pub use tx::{FIRST_BYTES, TxFrame, TxQueue};

use crate::features;
use crate::packed::Position;

/// Most frames of one burst.
pub const BURST: usize = 64;

/// Longest frame in bytes, from the Ethernet header on: 64 KiB of IP with Ethernet header and two tags, rounded up.
pub const MAX_FRAME_LEN: usize = 65_600;

/// Most parts of one chain.
pub const MAX_PARTS: usize = 1024;

/// How a queue was set up by its driver and front end.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// Entries.
    pub size: u16,
    /// Descriptor table or packed ring, as an address in the front end's process.
    pub desc: u64,
    /// Driver area (available ring or event suppression), likewise.
    pub avail: u64,
    /// Device area (used ring or event suppression), likewise.
    pub used: u64,
    /// Features negotiated; see [`crate::features`].
    pub features: u64,
    /// Where to start.
    pub start: Start,
    /// Where a packed ring's position is written down. Split rings need none.
    pub log: Option<PositionLog>,
}

/// Where a queue starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At this position, as in vhost-user's `SET_VRING_BASE`. Split: the index of the next available entry. Packed: the
    /// index of the next descriptor in 15 bits, then its wrap counter.
    At(u16),
    /// Where its last user stopped, as far as that is visible to the driver. Buffers that had been taken but not
    /// returned are taken again. A packed ring needs the log that its last user kept.
    Recover,
}

impl Start {
    /// A ring of the format in `features` that was never used.
    pub const fn first(features: u64) -> Self {
        Self::At(first_position(features))
    }
}

/// Where a ring of the format in `features` begins: what a front end says in `SET_VRING_BASE`.
pub const fn first_position(features: u64) -> u16 {
    if features & features::RING_PACKED == 0 { 0 } else { Position::START.to_bits() }
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod tests;
