//! How a queue is set up.

use super::PositionLog;
use super::packed::Position;
use crate::features;

/// How a driver and its front end set up a queue.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// Number of entries.
    pub size: u16,
    /// Descriptor table or packed ring: an address in the front end's process.
    pub desc: u64,
    /// Driver area (available ring or event suppression): an address in the front end's process.
    pub avail: u64,
    /// Device area (used ring or event suppression): an address in the front end's process.
    pub used: u64,
    /// Negotiated features; see [`crate::features`].
    pub features: u64,
    /// Position to start at.
    pub start: Start,
    /// Log of a packed ring's position. Split rings need none.
    pub log: Option<PositionLog>,
}

/// Position that a queue starts at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A given position, as in vhost-user's `SET_VRING_BASE`. Split: index of the next available
    /// entry. Packed: index of the next descriptor in 15 bits, then its wrap counter.
    At(u16),
    /// The position where the last device end stopped, as far as the driver can see it. Buffers
    /// that were taken but not returned are taken again. A packed ring needs the log of the last
    /// device end.
    Recover,
}

impl Start {
    /// Start of a ring that was never used, in the format that `features` selects.
    pub const fn first(features: u64) -> Self {
        Self::At(first_position(features))
    }
}

/// First position of a ring in the format that `features` selects: what a front end sends in
/// `SET_VRING_BASE`.
pub const fn first_position(features: u64) -> u16 {
    if features & features::RING_PACKED == 0 { 0 } else { Position::START.to_bits() }
}
