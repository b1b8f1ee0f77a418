//! `sockaddr_in` and `sockaddr_in6` as bytes, and the addresses of machines that only have a
//! context ID.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use crate::map::{Map, Target};

/// Size of a `sockaddr_in6`, the longer of the two.
pub(crate) const LONGEST: usize = 28;

/// Reads an address that a program passed; `None` if it is neither IPv4 nor IPv6, or too short.
pub(crate) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip = match i32::from(family) {
        libc::AF_INET if bytes.len() >= 16 => IpAddr::from(*bytes.get(4..)?.first_chunk::<4>()?),
        libc::AF_INET6 if bytes.len() >= LONGEST => IpAddr::from(*bytes.get(8..)?.first_chunk::<16>()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The bytes of an address for a program, and their number.
pub(crate) fn encode(address: SocketAddr) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    let (family, ip, octets, len): (_, usize, &[u8], _) = match address.ip() {
        IpAddr::V4(v4) => (libc::AF_INET, 4, &v4.octets(), 16),
        IpAddr::V6(v6) => (libc::AF_INET6, 8, &v6.octets(), LONGEST),
    };
    let head = (family as u16).to_ne_bytes().into_iter().chain(address.port().to_be_bytes());
    for (to, from) in bytes.iter_mut().zip(head) {
        *to = from;
    }
    for (to, from) in bytes.iter_mut().skip(ip).zip(octets) {
        *to = *from;
    }
    (bytes, len)
}

/// An address as a socket of this family shows it. IPv6 sockets show IPv4 addresses mapped (RFC
/// 4291, 2.5.5.2).
pub(crate) fn shown(ip: IpAddr, v6: bool) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if v6 => IpAddr::V6(v4.to_ipv6_mapped()),
        other => other,
    }
}

/// The unspecified address of this family.
pub(crate) fn unspecified(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// The TCP port that stands for a VMCI port of 32 bits: its lower 16 bits, and never 0.
pub(crate) fn tcp_port(port: u32) -> u16 {
    (port as u16).max(1)
}

/// The address of a machine that has none in the map: link-local, 169.254.x.y, derived from the
/// lower half of its context ID.
pub(crate) fn made_up(cid: u32) -> Ipv4Addr {
    let [_, _, high, low] = cid.to_be_bytes();
    Ipv4Addr::new(169, 254, high, low)
}

/// The address of the other end of an accepted connection.
pub(crate) fn of_peer(map: Option<&Map>, from: &Target, port: u32, v6: bool) -> SocketAddr {
    let known = map.and_then(|map| map.address_of(from, v6));
    let ip = known.unwrap_or_else(|| {
        made_up(match from {
            Target::Cid(cid) => *cid,
            Target::Unix(_) => 0,
        })
        .into()
    });
    SocketAddr::new(shown(ip, v6), tcp_port(port))
}

/// This machine's address that its routes choose for a peer, as for TCP; `None` without a route.
pub(crate) fn towards(peer: IpAddr) -> Option<IpAddr> {
    let peer = peer.to_canonical();
    let socket = UdpSocket::bind(SocketAddr::new(unspecified(peer.is_ipv6()), 0)).ok()?;
    let to = match peer {
        IpAddr::V4(_) => SocketAddr::new(peer, 9),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, 9, 0, 0).into(),
    };
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_comes_back_from_its_bytes(ip: IpAddr, port: u16) {
            let address = SocketAddr::new(ip, port);
            let (bytes, len) = encode(address);
            prop_assert_eq!(decode(&bytes[..len]), Some(address));
            prop_assert_eq!(decode(&bytes[..len - 1]), None);
        }

        #[test]
        fn any_bytes_are_an_address_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn addresses_are_encoded_as_the_c_structures() {
        let (bytes, len) = encode("10.0.0.7:6379".parse().unwrap());
        assert_eq!(&bytes[..len], [2, 0, 0x18, 0xeb, 10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        let (bytes, len) = encode("[fd00::7]:80".parse().unwrap());
        assert_eq!(len, 28);
        assert_eq!(&bytes[..10], [10, 0, 0, 80, 0, 0, 0, 0, 0xfd, 0]);
    }

    #[test]
    fn a_peer_has_its_mapped_address_in_the_family_of_the_socket() {
        let map =
            Map::parse("10.0.0.7:* -> cid 12\n[fd00::8]:* -> cid 13", std::path::Path::new("x")).unwrap();
        let peer = |cid, v6| of_peer(Some(&map), &Target::Cid(cid), 70_000, v6).to_string();
        assert_eq!(peer(12, false), "10.0.0.7:4464");
        assert_eq!(peer(12, true), "[::ffff:10.0.0.7]:4464");
        assert_eq!(peer(13, true), "[fd00::8]:4464");
        assert_eq!(peer(13, false), "169.254.0.13:4464", "an IPv4 socket cannot show an IPv6 address");
        assert_eq!(peer(0x0001_0203, false), "169.254.2.3:4464");
        assert_eq!(of_peer(None, &Target::Cid(5), 65_536, false).to_string(), "169.254.0.5:1");
    }
}
