//! Messages about membership, read from a copy of a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    HOP_BY_HOP, ICMPV6, IGMP, IPV4, IPV4_HEADER, IPV6, IPV6_HEADER, PIM, ip_at, ipv4, ipv6, is_filtered,
    short,
};
use crate::net::checksum;
use crate::net::ethernet::Ethernet;

/// Most bytes of a frame that are read. Hosts fill a report up to the MTU at most, and this bounds
/// the work that a frame causes: no more than 254 groups.
pub const MOST_READ: usize = 2048;

/// Types of IGMP messages.
const IGMP_QUERY: u8 = 0x11;
const IGMP_REPORT_1: u8 = 0x12;
const IGMP_REPORT_2: u8 = 0x16;
const IGMP_LEAVE: u8 = 0x17;
const IGMP_REPORT_3: u8 = 0x22;
/// Types of MLD messages.
const MLD_QUERY: u8 = 130;
const MLD_REPORT_1: u8 = 131;
const MLD_DONE: u8 = 132;
const MLD_REPORT_2: u8 = 143;

/// Addresses of the reports of IGMPv3 and MLDv2 (RFC 3376, section 4.2.14; RFC 3810, section
/// 5.2.14). Other reports are too short for fragments.
const REPORTS_IPV4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const REPORTS_IPV6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Header of a fragment of an IPv6 packet.
const FRAGMENT: u8 = 44;
/// A fragment of a report. Its groups are not read.
const FRAGMENT_OF_REPORT: Message = Message::Report { complete: false };

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A router asks for members, or says that it is there (PIM).
    Router,
    /// A query without the address of a router: a switch asks (RFC 4541, section 2.1.1).
    Query,
    /// A host says which groups it has joined or left. `complete` is false if not all of the
    /// message could be read.
    Report {
        /// All of the message has been read.
        complete: bool,
    },
}

/// A host's statement about a group. Groups that are never kept from a port have no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The group.
    pub group: IpAddr,
    /// The change.
    pub change: Change,
}

/// Change of a membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The host is a member, of all sources or of some.
    Join,
    /// The host has left the group, or some of its sources. Another host behind the port, or the
    /// host itself, may still be a member.
    Leave,
}

/// Reads a message and writes what it says about groups to `records`, at most 254. Returns `None`
/// for a packet that is no message.
///
/// `frame` is a frame, or its first [`MOST_READ`] bytes. `is_summed` is false if its sender leaves
/// the checksum to be done. Sources are not read: a member of some sources is one of the group.
pub fn read(
    frame: &[u8],
    ethernet: &Ethernet,
    is_summed: bool,
    records: &mut Vec<Record>,
) -> Option<Message> {
    records.clear();
    let ip = frame.get(ip_at(ethernet)..)?;
    match ethernet.ether_type {
        IPV4 => read_ipv4(ip, is_summed, records),
        IPV6 => read_ipv6(ip, is_summed, records),
        _ => None,
    }
}

fn read_ipv4(ip: &[u8], is_summed: bool, records: &mut Vec<Record>) -> Option<Message> {
    let header = 4 * usize::from(ip.first()? & 0x0f);
    let total = short(ip, 2)?;
    if ip[0] >> 4 != 4 || header < IPV4_HEADER || total < header {
        return None;
    }
    let (protocol, to) = (*ip.get(9)?, ipv4(ip, 16)?);
    if short(ip, 6)? & 0x3fff != 0 {
        return (protocol == IGMP && to == REPORTS_IPV4).then_some(FRAGMENT_OF_REPORT);
    }
    let body = ip.get(header..total.min(ip.len()))?;
    match protocol {
        PIM => Some(Message::Router),
        IGMP => {
            let is_whole = ip.len() >= total;
            if is_whole && is_summed && checksum::fold(checksum::add(0, body)) != 0 {
                return None;
            }
            read_igmp(body, ipv4(ip, 12)?, is_whole, records)
        }
        _ => None,
    }
}

fn read_igmp(body: &[u8], source: Ipv4Addr, is_whole: bool, records: &mut Vec<Record>) -> Option<Message> {
    let group = IpAddr::V4(ipv4(body, 4)?);
    match body[0] {
        IGMP_QUERY if source.is_unspecified() => return Some(Message::Query),
        IGMP_QUERY => return Some(Message::Router),
        IGMP_REPORT_1 | IGMP_REPORT_2 => add(records, group, Change::Join),
        IGMP_LEAVE => add(records, group, Change::Leave),
        IGMP_REPORT_3 => {
            let complete = read_records(body, |at| Some((IpAddr::V4(ipv4(body, at)?), 4)), records);
            return Some(Message::Report { complete: complete && is_whole });
        }
        _ => return None,
    }
    Some(Message::Report { complete: true })
}

fn read_ipv6(ip: &[u8], is_summed: bool, records: &mut Vec<Record>) -> Option<Message> {
    let total = IPV6_HEADER + short(ip, 4)?;
    if ip[0] >> 4 != 6 {
        return None;
    }
    match *ip.get(6)? {
        PIM => return Some(Message::Router),
        HOP_BY_HOP => {}
        _ => return None,
    }
    // MLD follows hop-by-hop options, among them the router alert (RFC 2710, section 3).
    let options = 8 + 8 * usize::from(*ip.get(IPV6_HEADER + 1)?);
    let to = ipv6(ip, 24)?;
    match *ip.get(IPV6_HEADER)? {
        ICMPV6 => {}
        FRAGMENT if to == REPORTS_IPV6 => return Some(FRAGMENT_OF_REPORT),
        _ => return None,
    }
    let body = ip.get(IPV6_HEADER + options..total.min(ip.len()))?;
    let is_whole = ip.len() >= total;
    if is_whole && is_summed {
        let addresses = checksum::add(body.len() as u64 + u64::from(ICMPV6), ip.get(8..IPV6_HEADER)?);
        if checksum::fold(checksum::add(addresses, body)) != 0 {
            return None;
        }
    }
    read_mld(body, ipv6(ip, 8)?, is_whole, records)
}

fn read_mld(body: &[u8], source: Ipv6Addr, is_whole: bool, records: &mut Vec<Record>) -> Option<Message> {
    let group = || Some(IpAddr::V6(ipv6(body, 8)?));
    match *body.first()? {
        MLD_QUERY => {
            group()?;
            // Hosts take no query from another address (RFC 3810, section 5.1.14).
            return Some(if source.is_unicast_link_local() { Message::Router } else { Message::Query });
        }
        MLD_REPORT_1 => add(records, group()?, Change::Join),
        MLD_DONE => add(records, group()?, Change::Leave),
        MLD_REPORT_2 => {
            let complete = read_records(body, |at| Some((IpAddr::V6(ipv6(body, at)?), 16)), records);
            return Some(Message::Report { complete: complete && is_whole });
        }
        _ => return None,
    }
    Some(Message::Report { complete: true })
}

/// Reads the records of a report of IGMPv3 or MLDv2, which differ only in their addresses.
/// `address` returns the address at an offset, and its length. Returns false if records are
/// missing.
fn read_records(
    body: &[u8],
    address: impl Fn(usize) -> Option<(IpAddr, usize)>,
    records: &mut Vec<Record>,
) -> bool {
    let Some(count) = short(body, 6) else { return false };
    let mut at = 8;
    for _ in 0..count {
        let (Some(&kind), Some(&auxiliary), Some(sources)) =
            (body.get(at), body.get(at + 1), short(body, at + 2))
        else {
            return false;
        };
        let Some((group, length)) = address(at + 4) else { return false };
        let change = match (kind, sources) {
            // MODE_IS_INCLUDE and CHANGE_TO_INCLUDE_MODE without a source: nobody is a member.
            // BLOCK_OLD_SOURCES: these may have been all.
            (1 | 3, 0) | (6, _) => Some(Change::Leave),
            // With sources, MODE_IS_EXCLUDE and CHANGE_TO_EXCLUDE_MODE, ALLOW_NEW_SOURCES.
            (1..=5, _) => Some(Change::Join),
            // Unknown ones are ignored (RFC 3376, section 4.2.12).
            _ => None,
        };
        if let Some(change) = change {
            add(records, group, change);
        }
        at += 4 + length + sources * length + 4 * usize::from(auxiliary);
    }
    true
}

fn add(records: &mut Vec<Record>, group: IpAddr, change: Change) {
    if is_filtered(group) {
        records.push(Record { group, change });
    }
}
