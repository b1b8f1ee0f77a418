//! May this frame pass, and to whom? Decided from the frame's private copy alone.

use std::time::Instant;

use taut_api::fabric::DropReason;

use super::mac_table::Key;
use super::{Member, Segment};
use crate::net::ethernet::{Ethernet, MacKey};

/// For whom a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// For this member. Promiscuous ones see it as well.
    To(u32),
    /// For every member of the VLAN but the sender.
    All,
    /// For an address that nobody is known to have: for members that learn, and promiscuous ones.
    Unknown,
    /// For the sender itself; promiscuous members see it nevertheless.
    Back,
}

/// A frame's VLAN, and whom it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routed {
    /// VLAN.
    pub vlan: u16,
    /// Receivers.
    pub route: Route,
}

/// Applies VLAN and security policy of the sender's port group and looks up the destination.
#[inline]
pub fn route(segment: &Segment, sender: u32, frame: &Ethernet, now: Instant) -> Result<Routed, DropReason> {
    let from = &segment.members[sender as usize];
    let vlan = from.vlan.ingress(frame.tag)?;
    if frame.src != from.mac || from.moves() {
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
        Some(member) => Route::To(member),
        None => Route::Unknown,
    };
    Ok(Routed { vlan, route })
}

/// A source other than the configured one, or from a port that may have another address: may it be used, and what is
/// to be remembered of it?
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
    if from.learns() {
        segment.learn(from, vlan, src, now);
        return Ok(());
    }
    let is_its_own = if from.moves() { segment.adopt(from, vlan, src, now) } else { src == from.mac };
    if is_its_own || from.security.forged_transmits { Ok(()) } else { Err(DropReason::ForgedTransmit) }
}

impl Member {
    /// Are addresses behind it learnt?
    #[inline]
    pub fn learns(&self) -> bool {
        self.mac_learning && self.security.forged_transmits
    }

    /// Does its address follow what it sends?
    #[inline]
    pub fn moves(&self) -> bool {
        self.security.mac_changes && !self.learns()
    }

    /// Its address in the VLAN, in the form in which it is kept.
    fn key(&self, vlan: u16, mac: MacKey) -> Key {
        if self.vlan.is_trunk() { Key::everywhere(mac) } else { Key::new(vlan, mac) }
    }
}

impl Segment {
    /// The member that has an address in a VLAN: by configuration, else by what it sent.
    #[inline]
    pub fn find(&self, vlan: u16, mac: MacKey, now: Instant) -> Option<u32> {
        if let Some(member) = self.configured(vlan, mac) {
            let owner = &self.members[member as usize];
            return (!owner.moves() || owner.port.address.is(mac, owner.mac)).then_some(member);
        }
        self.learnt(vlan, mac, now)
    }

    #[inline]
    fn configured(&self, vlan: u16, mac: MacKey) -> Option<u32> {
        let admits = |member: &u32| self.members[*member as usize].vlan.admits(vlan);
        match self.table.find(Key::new(vlan, mac)) {
            None if self.has_trunks => self.table.find(Key::everywhere(mac)).filter(admits),
            found => found,
        }
    }

    fn learnt(&self, vlan: u16, mac: MacKey, now: Instant) -> Option<u32> {
        let learned = self.learned.as_ref()?;
        let second = learned.second(now);
        let port = match learned.find(Key::new(vlan, mac), second) {
            None if self.has_trunks => learned.find(Key::everywhere(mac), second),
            found => found,
        }?;
        // An entry may be newer than this configuration, or older.
        let member = *self.by_port.get(usize::from(port.0))?;
        let owner = self.members.get(member as usize)?;
        (owner.vlan.admits(vlan) && (owner.learns() || owner.moves())).then_some(member)
    }

    /// A learning port sends from `src`. Configured addresses are never learnt elsewhere.
    fn learn(&self, from: &Member, vlan: u16, src: MacKey, now: Instant) {
        if let Some(learned) = &self.learned
            && src.is_assignable()
            && self.configured(vlan, src).is_none()
        {
            learned.learn(from.port.id, Key::new(vlan, src), learned.second(now));
        }
    }

    /// A port whose address may change sends from `src`: is that its address now? Not if it is another's by configuration.
    fn adopt(&self, from: &Member, vlan: u16, src: MacKey, now: Instant) -> bool {
        let Some(learned) = &self.learned else { return src == from.mac };
        let adopted = src == from.mac
            || src.is_assignable()
                && self.configured(vlan, src).is_none()
                && learned.learn(from.port.id, from.key(vlan, src), learned.second(now));
        if adopted {
            // Whoever takes an address out of here forgets it: several workers may serve one port.
            let before = from.port.address.replace(src, from.mac);
            if before != src && before != from.mac {
                learned.forget(from.port.id, from.key(vlan, before));
            }
        }
        adopted
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
