//! Statements of stations about their IP addresses, and answers of gateways: ARP and Neighbour
//! Discovery, as guests and hosts outside send them, and the addresses that follow from them.
//!
//! Input: 1 byte of flags, then frames: 1 byte each of the sending port, of the VLAN and of the
//! length, and the frame.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use taut_uplink::team::{
    Expected, Known, Proof, Statement, Uplink, ip_announcement, may_be_statement, statement,
};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "statement", run, budget: Budget::of(100, 16) };

/// Ports of the vSwitch. The next number stands for any station that has no port.
const PORTS: u8 = 4;
const VLANS: u8 = 2;
/// Most frames of an input.
const MOST_FRAMES: usize = 64;
/// Most addresses of a port.
const MOST_ADDRESSES: usize = 16;
/// Bytes of an Ethernet header, and of an IPv6 header.
const ETHERNET: usize = 14;
const IPV6: usize = 40;

fn run(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.u8();
    let tag = if flags & 1 == 0 { 0 } else { 4 };
    let gateways: [IpAddr; 2] = [[10, 0, 0, 1].into(), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into()];
    let gateways: BTreeSet<_> = gateways.map(|gateway| (0, gateway)).into();
    let expected = Expected { beacons: Some((7, 1)), gateways };
    let mut known = Known::default();
    for _ in 0..MOST_FRAMES {
        if input.is_empty() {
            break;
        }
        let port = input.u8() % (PORTS + 1);
        let vlan = u16::from(input.u8() % VLANS);
        let length = input.u8().into();
        let mut frame = input.slice(length).to_vec();
        if flags & 2 == 0 {
            complete(&mut frame, tag);
        }
        prove(&expected, vlan, &frame, tag);
        let Some(stated) = statement(&frame, tag) else { continue };
        assert!(may_be_statement(&frame, tag));
        assert_eq!(stated.mac, frame[6..12]);
        announce(&stated);
        known.hear((port < PORTS).then_some(port), vlan, &stated);
        check(&known, port, vlan, &stated);
    }
}

/// Completes the checksum of an ICMPv6 message. Few inputs would have a right one.
fn complete(frame: &mut [u8], tag: usize) {
    let Some(packet) = frame.get_mut(ETHERNET + tag..) else { return };
    let Some((header, rest)) = packet.split_at_mut_checked(IPV6) else { return };
    let length = u16::from_be_bytes([header[4], header[5]]);
    let Some(message) = rest.get_mut(..length.into()).filter(|message| message.len() >= 4) else { return };
    message[2..4].fill(0);
    let words = header[8..].chunks(2).chain(message.chunks(2));
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum();
    let mut sum = sum + u32::from(length) + 58;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Checks that a frame proves nothing that is not expected.
fn prove(expected: &Expected, vlan: u16, frame: &[u8], tag: usize) {
    let uplink = Uplink::new(0).expect("a number of an uplink");
    match expected.proof(uplink, vlan, true, frame, tag) {
        Some(Proof::Answer { vlan, gateway }) => assert!(expected.gateways.contains(&(vlan, gateway))),
        Some(Proof::Beacon) => {
            assert!(frame[ETHERNET + tag..].starts_with(b"taut\x01\0\0\0\0\0\0\0\x07\0\x01"));
        }
        None => {}
    }
    let to_others = expected.proof(uplink, vlan, false, frame, tag);
    assert!(!matches!(to_others, Some(Proof::Answer { .. })), "it is not for the card");
}

/// Checks that an address is one that a station can have, and that its announcement states the
/// same.
fn announce(stated: &Statement) {
    let Some(ip) = stated.ip else { return };
    assert!(!ip.is_multicast() && !ip.is_unspecified() && !ip.is_loopback(), "{ip}");
    let is_router = stated.is_router.or(Some(false));
    let frame = ip_announcement(stated.mac, ip, is_router).expect("it is known whether it is a router");
    let is_router = is_router.filter(|_| ip.is_ipv6());
    assert_eq!(statement(&frame, 0), Some(Statement { is_router, ..*stated }));
}

/// Checks that each address has one owner, and that the port of a statement has its address.
fn check(known: &Known<u8>, from: u8, vlan: u16, stated: &Statement) {
    let mut all = BTreeSet::new();
    for port in 0..PORTS {
        assert!(known.places(port).count() <= MOST_ADDRESSES);
        for place in known.places(port) {
            assert!(known.mac(port, place).is_some() && all.insert(place), "{place:?}");
        }
    }
    if let Some(ip) = stated.ip {
        let place = (vlan, ip);
        assert_eq!(all.contains(&place), from < PORTS);
        assert_eq!(known.mac(from, place), (from < PORTS).then_some(stated.mac));
    }
    if from < PORTS && stated.is_router == Some(true) {
        assert_eq!(known.is_router(from), Some(true));
    }
}
