//! Addresses that drivers have set: which port has which, if several want the same.

use std::sync::Arc;

use taut_api::fabric::config::PortConfig;
use taut_api::fabric::counters::PortWord;

use super::member::{AddressBy, Member};
use crate::net::ethernet::MacKey;
use crate::port::Port;

/// Gives the ports the addresses that their drivers have set, and returns for each member the
/// address that differs from its configured one.
///
/// A port does not get an address that is configured for another one in its VLANs
/// ([`super::vlan::PortVlan::conflicts`]), that such a port has by its frames, or that its driver
/// has set before ([`PortConfig::effective_order`]). Then it has its configured address, and
/// [`PortWord::AddressRefused`] tells it.
pub(super) fn set_addresses(
    ports: &[(&PortConfig, &Arc<Port>)],
    members: &mut [Member],
) -> Vec<Option<MacKey>> {
    let wanted = |index: usize| {
        let mac = MacKey::from(ports[index].0.effective?);
        let Member { address_by, mac: configured, .. } = members[index];
        let by_driver = matches!(address_by, AddressBy::Driver(_));
        (by_driver && mac != configured && mac.is_assignable()).then_some(mac)
    };
    let had = |index: usize, mac| members[index].port.address.is(mac, members[index].mac);
    let mut claims: Vec<_> = (0..ports.len()).filter_map(|index| Some((index, wanted(index)?))).collect();
    // Of drivers whose order is not known, those come first whose ports have the address already.
    claims.sort_by_key(|(index, mac)| (ports[*index].0.effective_order, !had(*index, *mac)));
    let mut set = vec![None; members.len()];
    for (index, mac) in claims {
        let is_new = !had(index, mac);
        let others = || (0..members.len()).filter(|other| *other != index);
        let has = |other: usize| {
            let member = &members[other];
            let by_frames = is_new && member.address_by == AddressBy::Frames && member.has_address(mac);
            member.mac == mac || set[other] == Some(mac) || by_frames
        };
        let is_taken =
            others().any(|other| has(other) && members[other].vlan.conflicts(&members[index].vlan));
        set[index] = (!is_taken).then_some(mac);
    }
    for ((member, mac), (config, _)) in members.iter_mut().zip(&set).zip(ports) {
        let mut is_refused = false;
        if let AddressBy::Driver(own) = &mut member.address_by {
            *own = mac.unwrap_or(member.mac);
            member.port.address.replace(*own, member.mac);
            is_refused = config.effective.is_some_and(|effective| MacKey::from(effective) != *own);
        }
        member.port.counters.set(PortWord::AddressRefused, is_refused.into());
    }
    set
}
