//! IP multicast: groups of frames, and messages about membership.
//!
//! * `message`: reports, leaves and queries of IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710,
//!   3810);
//! * `query`: queries that the fabric sends.

mod message;
mod query;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ethernet::{Ethernet, HEADER, TAG};
pub use message::{Change, MOST_READ, Message, Record, read};
pub use query::queries;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Length of an IPv4 header without options.
const IPV4_HEADER: usize = 20;
/// Length of an IPv6 header.
const IPV6_HEADER: usize = 40;
/// Protocol numbers: IPv6 hop-by-hop options, IGMP, ICMPv6, PIM.
const HOP_BY_HOP: u8 = 0;
const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
const PIM: u8 = 103;

/// Kind of a frame to a group address, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A frame for all stations: it is no IP multicast, or its group is local to the link
    /// (224.0.0.0/24, ff02::/16).
    All,
    /// A packet to this group.
    Group(IpAddr),
    /// A packet that may be a message about membership or of a router. [`read`] tells.
    Message,
}

/// Returns the kind of a frame that begins with `head`.
///
/// The address of the frame must be that of the packet's group (RFC 1112, RFC 2464), or the frame
/// is for all stations.
pub fn kind(head: &[u8], ethernet: &Ethernet) -> Kind {
    let ip = &head[ip_at(ethernet).min(head.len())..];
    let protocol = match ethernet.ether_type {
        IPV4 => ip.get(9),
        IPV6 => ip.get(6),
        _ => return Kind::All,
    };
    match (ethernet.ether_type, protocol) {
        (IPV4, Some(&(IGMP | PIM))) | (IPV6, Some(&(HOP_BY_HOP | PIM))) => Kind::Message,
        _ => plain_kind(head, ethernet),
    }
}

/// Returns the kind of a frame that begins with `head` and has no message.
pub fn plain_kind(head: &[u8], ethernet: &Ethernet) -> Kind {
    let ip = &head[ip_at(ethernet).min(head.len())..];
    let group = destination(ip, ethernet.ether_type);
    match group.filter(|group| is_filtered(*group) && ethernet.dst.0 == address_of(*group)) {
        Some(group) => Kind::Group(group),
        None => Kind::All,
    }
}

/// Returns whether frames to a group may be kept from ports that are no members. Groups that are
/// local to a node or a link go to all ports: hosts need not join them (RFC 4541, sections 2.1.2
/// and 3).
pub fn is_filtered(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && group.octets()[..3] != [224, 0, 0],
        IpAddr::V6(group) => group.is_multicast() && group.octets()[1] & 0x0f > 2,
    }
}

/// Offset of the IP header.
fn ip_at(ethernet: &Ethernet) -> usize {
    if ethernet.tag.is_some() { HEADER + TAG } else { HEADER }
}

/// Returns the destination address of an IP packet.
fn destination(ip: &[u8], ether_type: u16) -> Option<IpAddr> {
    match ether_type {
        IPV4 => Some(IpAddr::V4(ipv4(ip, 16)?)),
        IPV6 => Some(IpAddr::V6(ipv6(ip, 24)?)),
        _ => None,
    }
}

/// Returns the Ethernet address of a group as a number, as [`super::ethernet::MacKey`] has it.
fn address_of(group: IpAddr) -> u64 {
    let octets = match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0, 0x5e, b & 0x7f, c, d, 0, 0]
        }
        IpAddr::V6(group) => {
            let [.., w, x, y, z] = group.octets();
            [0x33, 0x33, w, x, y, z, 0, 0]
        }
    };
    u64::from_le_bytes(octets)
}

fn ipv4(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(octets.into())
}

fn ipv6(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(octets.into())
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]).into())
}

#[cfg(test)]
mod tests;
