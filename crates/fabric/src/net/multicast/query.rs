//! Queries that the fabric sends to ports. They never leave by an uplink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{HOP_BY_HOP, ICMPV6, IGMP, IPV4, IPV6};
use crate::net::checksum::{add, fold};

/// Ethernet address of the fabric: a locally administered one.
const OWN_MAC: [u8; 6] = [0x02, 0x74, 0x61, 0x75, 0x74, 0x00];
/// Link-local address of the fabric. It is high, so that no router in a guest gives way: the lowest
/// address wins the election (RFC 3810, section 7.6.2).
const OWN_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xffff, 0xffff, 0xffff, 0xfffe);
const ALL_IPV4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_IPV6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Longest time until an answer: 1 s, in tenths of a second and in milliseconds.
const ANSWER_IGMP: u8 = 10;
const ANSWER_MLD: u16 = 1000;
/// Robustness variable and query interval in seconds (RFC 3376, sections 8.1 and 8.2).
const ROBUSTNESS: u8 = 2;
const INTERVAL: u8 = 125;
/// Shortest frame without its checksum.
const SHORTEST: usize = 60;

/// Returns the queries for all members of a group, or of all groups, without VLAN tags.
///
/// They are those of IGMPv3 and MLDv2, which hosts of earlier versions understand. All go to the
/// address of all hosts: hosts take them there (RFC 3376, section 4.1.12), and earlier kernels of
/// Linux drop packets from 0.0.0.0 to other groups.
pub fn queries(group: Option<IpAddr>) -> Vec<Vec<u8>> {
    match group {
        None => vec![igmp(Ipv4Addr::UNSPECIFIED), mld(Ipv6Addr::UNSPECIFIED)],
        Some(IpAddr::V4(group)) => vec![igmp(group)],
        Some(IpAddr::V6(group)) => vec![mld(group)],
    }
}

fn igmp(group: Ipv4Addr) -> Vec<u8> {
    let mut query = vec![0x11, ANSWER_IGMP, 0, 0];
    query.extend(group.octets());
    query.extend([ROBUSTNESS, INTERVAL, 0, 0]);
    let sum = fold(add(0, &query));
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    // An IPv4 header with the option of a router alert, of internetwork control, with TTL 1.
    let mut ip = vec![0x46, 0xc0, 0, 24 + query.len() as u8, 0, 0, 0, 0, 1, IGMP, 0, 0];
    ip.extend(Ipv4Addr::UNSPECIFIED.octets());
    ip.extend(ALL_IPV4.octets());
    ip.extend([0x94, 4, 0, 0]);
    let sum = fold(add(0, &ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(query);
    frame([0x01, 0, 0x5e, 0, 0, 1], IPV4, &ip)
}

fn mld(group: Ipv6Addr) -> Vec<u8> {
    let mut query = vec![130, 0, 0, 0];
    query.extend(ANSWER_MLD.to_be_bytes());
    query.extend([0, 0]);
    query.extend(group.octets());
    query.extend([ROBUSTNESS, INTERVAL, 0, 0]);
    let addresses = [OWN_IPV6.octets(), ALL_IPV6.octets()].concat();
    let length = query.len() as u64;
    let sum = fold(add(add(length + u64::from(ICMPV6), &addresses), &query));
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    // An IPv6 header with hop limit 1, and hop-by-hop options: a router alert and padding.
    let mut ip = vec![0x60, 0, 0, 0, 0, 8 + length as u8, HOP_BY_HOP, 1];
    ip.extend(addresses);
    ip.extend([ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
    ip.extend(query);
    frame([0x33, 0x33, 0, 0, 0, 1], IPV6, &ip)
}

fn frame(to: [u8; 6], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &OWN_MAC, &ether_type.to_be_bytes(), packet].concat();
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}
