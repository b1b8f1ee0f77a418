//! Statements of stations about their IP addresses, read from frames to groups: ARP (RFC 826) and
//! Neighbour Discovery (RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::frame::{ARP, ETHERNET_IPV4, HEADER};
use super::neighbour::{self, IPV6, is_of_neighbour};

/// Statement of the station that has sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// Ethernet address of the station.
    pub mac: [u8; 6],
    /// The station has this address.
    pub ip: Option<IpAddr>,
    /// The station is an IPv6 router or not.
    pub is_router: Option<bool>,
}

/// Returns whether a frame that begins with `start`, whose contents begin after `tag` bytes of a
/// VLAN tag, can be a statement.
pub fn may_be_statement(start: &[u8], tag: usize) -> bool {
    let (Some(ethertype), Some(contents)) = (ethertype(start, tag), start.get(HEADER + tag..)) else {
        return false;
    };
    match ethertype {
        ARP => true,
        IPV6 => is_of_neighbour(contents),
        _ => false,
    }
}

/// Returns the statement in a frame whose contents begin after `tag` bytes of a VLAN tag; `None` if
/// there is none.
///
/// The station speaks for itself only: a packet that names another Ethernet address is none. A
/// question whether anybody has an IPv4 address (RFC 5227) says nothing of its sender.
pub fn statement(frame: &[u8], tag: usize) -> Option<Statement> {
    let mac: [u8; 6] = *frame.get(6..)?.first_chunk()?;
    let contents = frame.get(HEADER + tag..)?;
    let (ip, is_router) = match ethertype(frame, tag)? {
        ARP => {
            let packet = contents.strip_prefix(&ETHERNET_IPV4)?.get(2..)?;
            let ip: [u8; 4] = *packet.strip_prefix(&mac)?.first_chunk()?;
            (Some(IpAddr::from(ip)), None)
        }
        IPV6 => {
            let (ip, is_router) = neighbour::statement(contents, mac)?;
            (ip.map(IpAddr::V6), is_router)
        }
        _ => return None,
    };
    Some(Statement { mac, ip: ip.filter(|ip| is_of_station(*ip)), is_router })
}

fn ethertype(frame: &[u8], tag: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(HEADER + tag - 2..)?.first_chunk()?))
}

/// Returns whether one station can have an address.
fn is_of_station(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, ..] = ip.octets();
            (1..Ipv4Addr::new(224, 0, 0, 0).octets()[0]).contains(&first) && !ip.is_loopback()
        }
        IpAddr::V6(ip) => !ip.is_multicast() && ip > Ipv6Addr::LOCALHOST && ip.to_ipv4_mapped().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::arp;
    use super::super::neighbour::advertisement;
    use super::*;

    const MAC: [u8; 6] = [0, 0x50, 0x56, 1, 2, 3];
    const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

    fn ip_of(frame: &[u8]) -> Option<IpAddr> {
        assert!(may_be_statement(frame, 0));
        statement(frame, 0)?.ip
    }

    #[test]
    fn arp_and_advertisements_state_the_address_of_their_sender() {
        let expected = Some(Statement { mac: MAC, ip: Some(IP.into()), is_router: None });
        for operation in [1, 2] {
            let frame = arp(ARP, operation, (MAC, IP), ([0; 6], Ipv4Addr::new(10, 0, 0, 1)));
            assert_eq!(statement(&frame, 0), expected);
            let tagged = [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat();
            assert!(may_be_statement(&tagged, 4));
            assert_eq!(statement(&tagged, 4), expected);
        }
        let ip: Ipv6Addr = "2001:db8::5".parse().unwrap();
        let frame = advertisement(MAC, ip, true);
        let expected = Statement { mac: MAC, ip: Some(ip.into()), is_router: Some(true) };
        assert_eq!(statement(&frame, 0), Some(expected));
        let mut routed = frame;
        routed[HEADER + 7] = 64;
        assert!(!may_be_statement(&routed, 0), "it may come from far away");
    }

    #[test]
    fn addresses_that_no_station_has_are_not_stated() {
        for ip in [[0, 0, 0, 0], [0, 1, 2, 3], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4], [240, 0, 0, 1]] {
            assert_eq!(ip_of(&arp(ARP, 1, (MAC, ip.into()), ([0; 6], IP))), None, "{ip:?}");
        }
        for ip in ["::", "::1", "ff02::1", "::ffff:10.0.0.5"] {
            assert_eq!(ip_of(&advertisement(MAC, ip.parse().unwrap(), false)), None, "{ip}");
        }
    }

    #[test]
    fn nobody_speaks_for_another_station() {
        let mut frame = arp(ARP, 2, (MAC, IP), (MAC, IP));
        frame[6] = 2;
        assert_eq!(statement(&frame, 0), None);
        let mut frame = advertisement(MAC, "fe80::5".parse().unwrap(), false);
        frame[6] = 2;
        assert_eq!(statement(&frame, 0), None);
    }

    #[test]
    fn parts_of_frames_state_nothing() {
        for frame in
            [arp(ARP, 1, (MAC, IP), (MAC, IP)), advertisement(MAC, "fe80::5".parse().unwrap(), false)]
        {
            for len in 0..32 {
                assert_eq!((statement(&frame[..len], 0), statement(&frame[..len], 4)), (None, None), "{len}");
            }
        }
        assert!(!may_be_statement(&[0; 64], 0));
    }
}
