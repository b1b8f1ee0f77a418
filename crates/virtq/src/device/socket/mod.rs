//! The device end of a socket device's two data queues (5.10): packets out of [`SocketTx`], packets into [`SocketRx`].
//!
//! A packet stays in its sender's ring until it has been copied, as a whole or in pieces, into its receiver's buffers: one
//! copy, and no memory of this process. Since receivers are not equally fast, packets are given back in any order.
//!
//! # Sending
//! 1. [`SocketTx::take`] gives the next packet: its header, read once, and how many bytes lie behind it.
//! 2. [`SocketRx::deliver`] with [`Piece::Packet`] copies to a guest, [`SocketTx::write_to`] to a descriptor,
//!    [`SocketTx::read`] to memory; each a part of the packet, or all of it.
//! 3. [`SocketTx::give_back`]; then, for any number of packets, [`SocketTx::publish`] and [`SocketTx::needs_interrupt`].
//!
//! Which packets are taken is written down in [`InFlight`], so that another process can go on after this one was killed.
//!
//! Sleeping is as in [`super`]. A queue belongs to one thread at a time. Nothing allocates per packet, but that a chain with
//! more parts than any before at the same place in the descriptor table makes that place's list grow.

mod in_flight;
mod rx;
mod tx;

pub use in_flight::{InFlight, WORDS};
pub use rx::{Piece, SocketRx};
pub use tx::{Packet, SocketTx};

use super::QueueConfig;
use crate::fault::QueueError;
use crate::features;

/// What these queues can do; a device offers no transport feature beyond it. Split rings only: packets come back out of
/// order, and there is one place to write down what is taken.
pub const RING_FEATURES: u64 = features::VERSION_1 | features::EVENT_IDX | features::INDIRECT_DESC;

/// Most entries of a transmit queue.
pub const MAX_SIZE: u16 = 1024;

/// Refuses queues with features that these cannot have.
fn check(config: &QueueConfig) -> Result<(), QueueError> {
    let has = |bit| config.features & bit != 0;
    if !has(features::VERSION_1) {
        return Err(QueueError::Legacy);
    }
    for (bit, feature) in [(features::RING_PACKED, "RING_PACKED"), (features::IN_ORDER, "IN_ORDER")] {
        if has(bit) {
            return Err(QueueError::Feature(feature));
        }
    }
    Ok(())
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod tests;
