//! The device end of a socket device's two data queues (5.10): packets out of [`SocketTx`], packets
//! into [`SocketRx`].
//!
//! A packet stays in its sender's ring until it has been copied, whole or in pieces, into its
//! receiver's buffers. There is one copy and no buffer in this process. Receivers are not equally
//! fast, so packets are given back in any order.
//!
//! # Sending
//! 1. [`SocketTx::take`] returns the next packet: its header, read once, and the number of bytes
//!    behind the header.
//! 2. [`SocketRx::deliver`] with [`Piece::Packet`] copies to a guest, [`SocketTx::write_to`] to a
//!    descriptor, [`SocketTx::read`] to memory; each copies a part of the packet or all of it.
//! 3. [`SocketTx::give_back`] returns the packet. [`SocketTx::publish`] and
//!    [`SocketTx::needs_interrupt`] follow after any number of packets.
//!
//! [`InFlight`] logs the packets that are taken, so that another process can go on after this one
//! was killed.
//!
//! Sleeping works as in [`super`]. A queue belongs to one thread at a time. Nothing allocates per
//! packet, with one exception: each place in the descriptor table has a list of parts, which grows
//! when a chain there has more parts than any before.

mod in_flight;
mod rx;
mod tx;

pub use in_flight::{InFlight, WORDS};
pub use rx::{Piece, SocketRx};
pub use tx::{Packet, SocketTx};

use crate::fault::QueueError;
use crate::features;
use crate::ring::QueueConfig;

/// Features that these queues support; a device offers no transport feature beyond them. Only split
/// rings are supported: packets are returned out of order, and [`InFlight`] logs heads of a split
/// ring.
pub const RING_FEATURES: u64 = features::VERSION_1 | features::EVENT_IDX | features::INDIRECT_DESC;

/// Most entries of a transmit queue.
pub const MAX_SIZE: u16 = 1024;

/// Refuses features that these queues do not support.
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
