//! Tests of frames for groups on a segment with snooping: port 0 sends, port 1 is a member, port 3
//! leads to a router, and port 2 has joined nothing.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::net::checksum;
use crate::net::multicast::{self, Change};
use crate::snooping::PortSetup;

const GROUP: [u8; 4] = [239, 1, 1, 1];
const OTHER: [u8; 4] = [239, 1, 1, 2];
const UDP: u8 = 17;
const IGMP: u8 = 2;
/// Time at which it is known what all ports have joined.
const KNOWN_MS: u64 = 12_000;

fn snooping_rig() -> Rig {
    let mut rig = Rig::on(&["0"; 4]);
    let snooping = Arc::new(Snooping::new(rig.start));
    let setup = |config: &PortConfig| {
        (config.id, PortSetup { owner: String::new(), vlan: config.vlan.clone(), takes_all: false })
    };
    snooping.change(|groups| {
        groups.set_ports(rig.configs.iter().map(setup).collect());
        for config in &rig.configs {
            assert!(groups.see(config.id, Some(1)));
            groups.asked(config.id, 0);
        }
    });
    let group = IpAddr::V4(Ipv4Addr::from(GROUP));
    let joins = [multicast::Record { group, change: Change::Join }];
    snooping.hear(PortId(1), 0, multicast::Message::Report { complete: true }, &joins, rig.start);
    snooping.hear(PortId(3), 0, multicast::Message::Router, &[], rig.start);
    rig.snooping.insert(SegmentId(1), snooping);
    rig.reconfigure();
    rig
}

/// A frame of port 0 to a group.
fn ipv4(protocol: u8, to: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut frame = [&[1, 0, 0x5e, to[1] & 0x7f, to[2], to[3]][..], &mac(0).0, &[8, 0]].concat();
    frame.extend([0x45, 0, 0, 20 + body.len() as u8, 0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, 1]);
    frame.extend(to);
    frame.extend(body);
    frame.resize(64, 0);
    frame
}

/// A report of IGMPv2 for a group.
fn report(group: [u8; 4]) -> Vec<u8> {
    let mut body = [&[0x16, 0, 0, 0][..], &group].concat();
    let sum = checksum::fold(checksum::add(0, &body));
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv4(IGMP, group, &body)
}

/// Sends a frame, and returns the ports that have got it.
fn receivers(rig: &mut Rig, ms: u64, frame: &[u8]) -> Vec<u16> {
    assert_eq!(rig.send(ms, &NO_OFFLOADS, frame), Verdict::Done);
    let mut receivers = Vec::new();
    for port in 1..=3 {
        let received = rig.received(port);
        assert!(received.iter().all(|copy| copy == frame) && received.len() < 2);
        receivers.extend((!received.is_empty()).then_some(port));
    }
    receivers
}

#[test]
fn members_and_routers_get_the_frames_of_a_group() {
    let mut rig = snooping_rig();
    let datagram = |to| ipv4(UDP, to, &[7; 20]);
    assert_eq!(receivers(&mut rig, 5000, &datagram(OTHER)), [1, 2, 3], "it is not known who has joined");
    assert_eq!(receivers(&mut rig, KNOWN_MS, &datagram(GROUP)), [1, 3]);
    assert_eq!(receivers(&mut rig, KNOWN_MS, &datagram(OTHER)), [3]);
    assert_eq!(receivers(&mut rig, KNOWN_MS, &datagram([224, 0, 0, 251])), [1, 2, 3]);
    // The group shares its Ethernet address with one that has no member.
    assert_eq!(receivers(&mut rig, KNOWN_MS, &datagram([239, 129, 1, 1])), [3]);
    let mut misaddressed = datagram(GROUP);
    misaddressed[5] = 9;
    assert_eq!(receivers(&mut rig, KNOWN_MS, &misaddressed), [1, 2, 3]);
    let mut broadcast = datagram(GROUP);
    broadcast[..6].fill(0xff);
    assert_eq!(receivers(&mut rig, KNOWN_MS, &broadcast), [1, 2, 3]);
    // Without snooping they go to all.
    rig.snooping.clear();
    rig.reconfigure();
    assert_eq!(receivers(&mut rig, KNOWN_MS, &datagram(OTHER)), [1, 2, 3]);
}

#[test]
fn reports_reach_routers_and_are_noted_and_other_frames_like_them_are_not() {
    let mut rig = snooping_rig();
    let snooping = Arc::clone(&rig.snooping[&SegmentId(1)]);
    let members = |group: [u8; 4]| {
        let group = IpAddr::V4(Ipv4Addr::from(group));
        let listing = snooping.change(|groups| groups.list(8, KNOWN_MS));
        listing.groups.into_iter().find(|listed| listed.1 == group).map(|(_, _, ports)| ports)
    };
    let mut broken = report(GROUP);
    broken[36] ^= 1;
    assert_eq!(receivers(&mut rig, KNOWN_MS, &broken), [1, 3], "it is a frame of its group");
    assert_eq!(members(GROUP), Some(vec![PortId(1)]));
    assert_eq!(receivers(&mut rig, KNOWN_MS, &report(GROUP)), [3]);
    assert_eq!(members(GROUP), Some(vec![PortId(0), PortId(1)]));
    assert_eq!(receivers(&mut rig, KNOWN_MS, &report(OTHER)), [3]);
    assert_eq!(members(OTHER), Some(vec![PortId(0)]));
    // A query goes to all, and makes its sender's port one of a router.
    let mut query = ipv4(IGMP, [224, 0, 0, 1], &[0x11, 100, 0xee, 0x9b, 0, 0, 0, 0]);
    assert_eq!(receivers(&mut rig, KNOWN_MS, &query), [1, 2, 3]);
    let routers = || snooping.change(|groups| groups.list(8, KNOWN_MS)).routers;
    assert_eq!(routers(), [PortId(0), PortId(3)]);
    // One of a switch has no address.
    query[26..30].fill(0);
    assert_eq!(receivers(&mut rig, KNOWN_MS, &query), [1, 2, 3]);
}

#[test]
fn a_message_with_many_groups_takes_the_time_of_as_many_frames() {
    let mut rig = snooping_rig();
    let mut body = vec![0x22, 0, 0, 0, 0, 0, 0, 180];
    for number in 0..180 {
        body.extend([4, 0, 0, 0, 239, 2, 2, number]);
    }
    let sum = checksum::fold(checksum::add(0, &body));
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ipv4(IGMP, [224, 0, 0, 22], &[]);
    frame.truncate(34);
    frame[16..18].copy_from_slice(&(20 + body.len() as u16).to_be_bytes());
    frame.extend(body);
    let mut forwarder =
        Forwarder::new(&rig.switch.segments[0], MemberIdx(0), PairIdx::FIRST, rig.start, &mut rig.work);
    let mut sent = 0;
    while !forwarder.is_long() {
        let verdict = forwarder.forward(&frame, frame.len(), &NO_OFFLOADS, Body::Host(&frame), &mut 0);
        assert_eq!(verdict, Verdict::Done);
        sent += 1;
    }
    assert_eq!(sent, PIECES_PER_BURST.div_ceil(180));
}
