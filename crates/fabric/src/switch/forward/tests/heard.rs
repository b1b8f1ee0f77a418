//! Tests of statements about IP addresses: port 0 has VLAN 10, port 1 is a trunk, and port 2 an
//! uplink.

use std::net::IpAddr;

use taut_uplink::team::{IpPlace, ip_announcement};

use super::*;
use crate::net::vlan::tagged;
use crate::switch::heard::Heard;
use crate::switch::outside::Outside;

const ACCESS: MemberIdx = MemberIdx(0);
const TRUNK: MemberIdx = MemberIdx(1);
const UPLINK: MemberIdx = MemberIdx(2);

struct Stations {
    rig: Rig,
    heard: Arc<Heard>,
}

impl Stations {
    fn new() -> Self {
        let mut rig = Rig::with(&["10", "10-20", "4095"], |configs| {
            configs[0].security.forged_transmits = true;
            configs[2].kind = PortKind::Uplink;
        });
        let outside = Outside::of_one_team(&rig.configs);
        let heard = Arc::clone(&outside.heard);
        let ports: Vec<_> =
            rig.switch.segments[0].members.iter().map(|member| Arc::clone(&member.port)).collect();
        let outsides = [(SegmentId(1), outside)].into();
        let configs = rig.configs.iter().zip(&ports);
        rig.switch = Switch::new(configs, &outsides, &BTreeMap::new(), &Switch::default());
        Self { rig, heard }
    }

    fn send(&mut self, from: MemberIdx, frame: &[u8]) {
        self.send_with(from, &NO_OFFLOADS, frame);
    }

    fn send_with(&mut self, from: MemberIdx, header: &NetHeader, frame: &[u8]) {
        assert_eq!(self.rig.send_from(from, 0, header, frame), Verdict::Done);
    }

    fn places(&self, port: MemberIdx) -> Vec<IpPlace> {
        self.heard.known().places(PortId(port.0 as u16)).collect()
    }
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// The gratuitous ARP of a station.
fn arp(station: u16, last: u8) -> Vec<u8> {
    ip_announcement(mac(station).0, ip(last), None).unwrap()
}

#[test]
fn a_port_has_the_addresses_that_it_states_in_the_vlan_of_the_frame() {
    let mut stations = Stations::new();
    stations.send(ACCESS, &arp(0, 5));
    stations.send(TRUNK, &tagged(&arp(1, 6), 15));
    stations.send(TRUNK, &tagged(&arp(1, 7), 10));
    assert_eq!(stations.places(ACCESS), [(10, ip(5))]);
    assert_eq!(stations.places(TRUNK), [(15, ip(6)), (10, ip(7))]);
    assert_eq!(stations.heard.known().mac(PortId(1), (15, ip(6))), Some(mac(1).0));
    // A frame that the policy refuses states nothing.
    stations.send(TRUNK, &tagged(&arp(1, 8), 21));
    assert_eq!(stations.rig.counters(1).tx_drops, [(DropReason::VlanNotAdmitted, 1)]);
    // The same address in another VLAN is another one.
    stations.send(TRUNK, &tagged(&arp(1, 5), 11));
    assert_eq!(stations.places(ACCESS), [(10, ip(5))]);
    assert_eq!(stations.places(TRUNK), [(15, ip(6)), (10, ip(7)), (11, ip(5))]);
}

#[test]
fn a_station_behind_a_port_has_its_addresses_instead_of_a_port() {
    let mut stations = Stations::new();
    stations.send(TRUNK, &tagged(&arp(1, 6), 10));
    stations.send(ACCESS, &arp(9, 5));
    assert_eq!(stations.places(ACCESS), [], "it is not the port's own address");
    stations.send(ACCESS, &arp(9, 6));
    assert_eq!((stations.places(ACCESS), stations.places(TRUNK)), (vec![], vec![]));
}

#[test]
fn a_packet_whose_checksum_is_to_be_completed_states_nothing() {
    let mut stations = Stations::new();
    let header = NetHeader { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..NO_OFFLOADS };
    stations.send_with(ACCESS, &header, &arp(0, 5));
    assert_eq!(stations.rig.counters(0).tx_drops, []);
    assert_eq!(stations.places(ACCESS), []);
    stations.send(ACCESS, &arp(0, 5));
    assert_eq!(stations.places(ACCESS), [(10, ip(5))]);
}

#[test]
fn a_station_outside_takes_an_address_in_its_vlan_unless_it_pretends_to_be_a_port() {
    let mut stations = Stations::new();
    stations.send(ACCESS, &arp(0, 5));
    stations.send(UPLINK, &tagged(&arp(0, 5), 10));
    assert_eq!(stations.rig.counters(2).tx_drops, [(DropReason::OwnSource, 1)]);
    stations.send(UPLINK, &tagged(&arp(9, 5), 11));
    stations.send(UPLINK, &tagged(&arp(9, 6), 10));
    assert_eq!(stations.places(ACCESS), [(10, ip(5))]);
    stations.send(UPLINK, &tagged(&arp(9, 5), 10));
    assert_eq!((stations.places(ACCESS), stations.places(UPLINK)), (vec![], vec![]));
}
