//! IP addresses of ports, as far as their stations have stated them. They are announced when a port
//! has another uplink.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::statement::Statement;

/// Most addresses of a port, over all VLANs: those that it has stated last.
const MOST_ADDRESSES: usize = 16;

/// An IP address in a VLAN; 0 for no VLAN.
pub type IpPlace = (u16, IpAddr);

/// Addresses of all ports of a vSwitch. An address in a VLAN has one owner: the station that has
/// stated it last. If that is no station of a port, the address is not kept.
#[derive(Debug)]
pub struct Known<P> {
    owners: BTreeMap<IpPlace, Owner<P>>,
    stations: BTreeMap<P, Station>,
}

#[derive(Debug, Clone, Copy)]
struct Owner<P> {
    port: P,
    mac: [u8; 6],
}

#[derive(Debug, Default)]
struct Station {
    /// Addresses, those that were stated last behind the others.
    places: VecDeque<IpPlace>,
    /// The station is an IPv6 router or not, if it has said so. One that was a router stays one,
    /// because a host that is taken for a router does no harm.
    is_router: Option<bool>,
}

impl<P> Default for Known<P> {
    fn default() -> Self {
        Self { owners: BTreeMap::new(), stations: BTreeMap::new() }
    }
}

impl<P: Ord + Copy> Known<P> {
    /// Notes a statement in a VLAN. `port` is the port whose own address the statement comes from;
    /// `None` for a station outside, or behind a port.
    pub fn hear(&mut self, port: Option<P>, vlan: u16, statement: &Statement) {
        let Statement { mac, ip, is_router } = *statement;
        if let (Some(port), Some(is_router)) = (port, is_router) {
            let station = self.stations.entry(port).or_default();
            station.is_router = Some(is_router || station.is_router == Some(true));
        }
        let Some(place) = ip.map(|ip| (vlan, ip)) else { return };
        self.remove(place);
        let Some(port) = port else { return };
        self.owners.insert(place, Owner { port, mac });
        let places = &mut self.stations.entry(port).or_default().places;
        places.push_back(place);
        if places.len() > MOST_ADDRESSES
            && let Some(oldest) = places.pop_front()
        {
            self.owners.remove(&oldest);
        }
    }

    /// Returns the addresses of a port.
    pub fn places(&self, port: P) -> impl Iterator<Item = IpPlace> {
        self.stations.get(&port).into_iter().flat_map(|station| station.places.iter().copied())
    }

    /// Returns the Ethernet address from which a port has stated an address, if it still owns that.
    pub fn mac(&self, port: P, place: IpPlace) -> Option<[u8; 6]> {
        self.owners.get(&place).filter(|owner| owner.port == port).map(|owner| owner.mac)
    }

    /// Returns whether the station of a port is an IPv6 router, if it has said so.
    pub fn is_router(&self, port: P) -> Option<bool> {
        self.stations.get(&port)?.is_router
    }

    /// Forgets what is known of a port.
    pub fn forget(&mut self, port: P) {
        for place in self.stations.remove(&port).into_iter().flat_map(|station| station.places) {
            self.owners.remove(&place);
        }
    }

    fn remove(&mut self, place: IpPlace) {
        let owner = self.owners.remove(&place);
        if let Some(station) = owner.and_then(|owner| self.stations.get_mut(&owner.port)) {
            station.places.retain(|other| *other != place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0, 0x50, 0x56, 1, 2, 3];

    fn states(last: u16) -> Statement {
        let [high, low] = last.to_be_bytes();
        Statement { mac: MAC, ip: Some(IpAddr::from([10, 0, high, low])), is_router: None }
    }

    fn places(known: &Known<u8>, port: u8) -> Vec<IpPlace> {
        known.places(port).collect()
    }

    #[test]
    fn the_last_station_that_states_an_address_has_it() {
        let mut known = Known::default();
        let place = (7, states(1).ip.unwrap());
        known.hear(Some(1), 7, &states(1));
        known.hear(Some(1), 7, &states(1));
        known.hear(Some(2), 8, &states(1));
        assert_eq!((places(&known, 1), known.mac(1, place)), (vec![place], Some(MAC)));
        assert_eq!(places(&known, 2), [(8, place.1)], "another VLAN is another network");
        known.hear(Some(2), 7, &states(1));
        assert_eq!((places(&known, 1), known.mac(1, place)), (vec![], None));
        assert_eq!(known.mac(2, place), Some(MAC));
        known.hear(None, 7, &states(1));
        assert_eq!((places(&known, 2), known.mac(2, place)), (vec![(8, place.1)], None), "it is outside now");
    }

    #[test]
    fn a_port_keeps_the_addresses_that_it_has_stated_last() {
        let mut known = Known::default();
        known.hear(Some(2), 0, &states(0));
        for last in 1..=1000 {
            known.hear(Some(1), 0, &states(last));
        }
        let kept: Vec<_> =
            (1000 - MOST_ADDRESSES as u16 + 1..=1000).map(|last| (0, states(last).ip.unwrap())).collect();
        assert_eq!(places(&known, 1), kept);
        assert_eq!((known.owners.len(), places(&known, 2).len()), (MOST_ADDRESSES + 1, 1));
        known.forget(1);
        assert_eq!((known.owners.len(), known.stations.len()), (1, 1));
    }

    #[test]
    fn a_router_stays_one_until_it_is_forgotten() {
        let mut known = Known::default();
        let mut say = |is_router| {
            known.hear(Some(1), 0, &Statement { mac: MAC, ip: None, is_router });
            known.is_router(1)
        };
        assert_eq!(say(None), None);
        assert_eq!(say(Some(false)), Some(false));
        assert_eq!((say(Some(true)), say(Some(false)), say(None)), (Some(true), Some(true), Some(true)));
        known.hear(None, 0, &Statement { mac: MAC, ip: None, is_router: Some(false) });
        assert_eq!(known.is_router(1), Some(true));
        known.forget(1);
        assert_eq!(known.is_router(1), None);
    }
}
