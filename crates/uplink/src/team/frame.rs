//! Frames that the fabric itself sends through uplinks, without VLAN tags.

use std::net::Ipv4Addr;

/// Type of ARP packets.
pub(super) const ARP: u16 = 0x0806;
/// Type of RARP packets.
pub(super) const RARP: u16 = 0x8035;
/// Bytes of an Ethernet header.
pub(super) const HEADER: usize = 14;
/// Shortest frame without its checksum.
pub(super) const SHORTEST: usize = 60;
/// Beginning of ARP for Ethernet and IPv4: kinds of addresses, and their lengths.
pub(super) const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Returns an Ethernet header.
pub(super) fn header(destination: [u8; 6], source: [u8; 6], ethertype: u16) -> Vec<u8> {
    let mut frame = Vec::with_capacity(SHORTEST + 32);
    frame.extend(destination);
    frame.extend(source);
    frame.extend(ethertype.to_be_bytes());
    frame
}

/// Returns an ARP or RARP packet to all stations (RFC 826, RFC 903).
pub(super) fn arp(
    ethertype: u16,
    operation: u16,
    sender: ([u8; 6], Ipv4Addr),
    target: ([u8; 6], Ipv4Addr),
) -> Vec<u8> {
    let mut frame = header([0xff; 6], sender.0, ethertype);
    frame.extend(ETHERNET_IPV4);
    frame.extend(operation.to_be_bytes());
    for (mac, ip) in [sender, target] {
        frame.extend(mac);
        frame.extend(ip.octets());
    }
    frame.resize(SHORTEST, 0);
    frame
}
