//! An interrupt that a moderator holds back.

use std::time::Instant;

/// An interrupt that the guest wants and has not received.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingInterrupt {
    /// Time at which the guest first wanted it.
    pub(super) since: Instant,
    /// Packets published at that time.
    pub(super) first: u32,
    /// Packets published since, the first ones included.
    pub(super) packets: u32,
}
