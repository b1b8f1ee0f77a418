//! The policy of port groups: which frames pass, and where they go.
//!
//! Decisions use only the frame's private copy, which no guest can change.

use std::time::Instant;

use super::index::MemberIdx;
use super::member::{AddressBy, Member};
use super::segment::Segment;
use crate::net::ethernet::{Ethernet, MacKey};
use taut_api::fabric::DropReason;

/// Receivers of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// One member. Promiscuous members receive a copy.
    To(MemberIdx),
    /// Every member of the VLAN except the sender.
    All,
    /// An uplink: no member is known to have the address. Members that learn, and promiscuous ones,
    /// receive a copy.
    Outside,
    /// Members that learn, and promiscuous ones: nobody is known to have the address.
    Unknown,
    /// Promiscuous members only: the address is the sender's own.
    Back,
}

/// A frame's VLAN and receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routed {
    /// The VLAN.
    pub vlan: u16,
    /// The receivers.
    pub route: Route,
}

/// Applies the sender's VLAN and security policy and looks up the destination.
///
/// The flow cache keeps the answer for all frames with the same sender, addresses and type. If a
/// new ground for refusal depends on anything else, such as the length or the tag, also test it in
/// `fast_target` (`forward/run.rs`), which every frame passes.
#[inline]
pub fn route(
    segment: &Segment,
    sender: MemberIdx,
    frame: &Ethernet,
    now: Instant,
) -> Result<Routed, DropReason> {
    let from = segment.member(sender);
    let vlan = from.vlan.ingress(frame.tag)?;
    if frame.src != from.mac || from.address_by() != AddressBy::Configuration {
        check_source(segment, from, vlan, frame.src, now)?;
    }
    if frame.dst.is_multicast() {
        if frame.dst.is_reserved() {
            return Err(DropReason::ReservedAddress);
        }
        return Ok(Routed { vlan, route: Route::All });
    }
    let route = match segment.find(vlan, frame.dst, now) {
        Some(member) if member == sender => Route::Back,
        Some(member) if !segment.takes(member, sender, frame.dst) => return Err(DropReason::WrongUplink),
        Some(member) => Route::To(member),
        // Frames from an uplink never leave by one.
        None if from.uplink.is_none() && segment.has_uplinks() => Route::Outside,
        None => Route::Unknown,
    };
    Ok(Routed { vlan, route })
}

/// Checks a source address that differs from the configured one, or comes from a port that may
/// change its address, and learns it where the policy says so. All addresses but those of members
/// are outside.
fn check_source(
    segment: &Segment,
    from: &Member,
    vlan: u16,
    src: MacKey,
    now: Instant,
) -> Result<(), DropReason> {
    if src.is_multicast() {
        return Err(DropReason::GroupSource);
    }
    if from.uplink.is_some() {
        // A frame comes back if a switch outside floods it to where it came from. What the cards
        // themselves have sent is for stations outside.
        let is_own = segment.find(vlan, src, now).is_some() || segment.has_card(src);
        return if is_own { Err(DropReason::OwnSource) } else { Ok(()) };
    }
    if from.learns() {
        segment.learn(from, vlan, src, now);
        return Ok(());
    }
    let own = match from.address_by() {
        AddressBy::Frames => segment.adopt(from, vlan, src, now),
        AddressBy::Driver(_) | AddressBy::Configuration => from.has_address(src),
    };
    if own || from.security.forged_transmits { Ok(()) } else { Err(DropReason::ForgedTransmit) }
}

#[cfg(test)]
mod tests;
