//! May this frame pass, and to whom? Decided from the frame's private copy alone.

use taut_api::fabric::DropReason;

use super::Segment;
use super::ethernet::Ethernet;

/// For whom a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// For this member.
    To(u32),
    /// For every member but the sender.
    All,
    /// For nobody on the segment; promiscuous members see it nevertheless.
    Nobody,
}

/// Applies the security policy of the sender's port group and looks up the destination.
#[inline]
pub fn route(segment: &Segment, sender: u32, frame: &Ethernet) -> Result<Route, DropReason> {
    let from = &segment.members[sender as usize];
    if frame.src != from.mac && !from.security.forged_transmits {
        return Err(DropReason::ForgedTransmit);
    }
    if frame.is_tagged() {
        return Err(DropReason::VlanTag);
    }
    if frame.dst.is_multicast() {
        return Ok(Route::All);
    }
    match segment.table.find(frame.dst) {
        Some(member) if member != sender => Ok(Route::To(member)),
        _ => Ok(Route::Nobody),
    }
}
