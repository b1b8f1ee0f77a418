//! `sockaddr_in` and `sockaddr_in6` as bytes, and the addresses of machines that only have a
//! context ID.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use crate::map::{Machine, Map};

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

/// Upper 12 bits of a VMCI source port that carries a TCP source port.
const CARRIES: u32 = 0x7a1;

/// Number of VMCI source ports that carry the same TCP source port.
pub(crate) const VARIANTS: u32 = 8;

/// The VMCI source port that carries a TCP source port and the family of the address that the
/// client used. `AF_VSOCK` transfers nothing else about the client's TCP socket. TCP may use one
/// source port for several peers at once, `AF_VSOCK` may not: hence the variants.
pub(crate) fn carrying(port: u16, v6: bool, variant: u32) -> u32 {
    CARRIES << 20 | (variant % VARIANTS) << 17 | u32::from(v6) << 16 | u32::from(port)
}

/// Tells whether the client used an IPv6 address; `None` if its source port does not carry that.
pub(crate) fn carried_family(port: u32) -> Option<bool> {
    (port >> 20 == CARRIES).then_some(port >> 16 & 1 == 1)
}

/// The port of a peer that came through a Unix socket and has none: derived from the cookie of the
/// connection's socket, and so the same in each process.
pub(crate) fn port_of(cookie: u64) -> u32 {
    0xc000 | (cookie as u32 & 0x3fff)
}

/// The addresses of peers that a listening TCP socket sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sees {
    /// An IPv4 socket: IPv4 addresses.
    V4,
    /// An IPv6 socket with `IPV6_V6ONLY`, or bound to one IPv6 address: IPv6 addresses.
    V6,
    /// An IPv6 socket for both families: IPv6 addresses, and mapped IPv4 addresses.
    Both,
    /// An IPv6 socket that is bound to a mapped IPv4 address.
    MappedV4,
}

impl Sees {
    /// The addresses that a socket sees that is bound to this address.
    pub(crate) fn at(bound: IpAddr, only_v6: bool) -> Self {
        match bound {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Self::MappedV4,
            IpAddr::V6(v6) if only_v6 || !v6.is_unspecified() => Self::V6,
            IpAddr::V6(_) => Self::Both,
        }
    }
}

/// The address of a machine that has none in the map: link-local, 169.254.x.y, derived from the
/// lower half of its context ID.
pub(crate) fn made_up(cid: u32) -> Ipv4Addr {
    let [_, _, high, low] = cid.to_be_bytes();
    Ipv4Addr::new(169, 254, high, low)
}

/// As [`made_up`], for sockets that see IPv6 addresses only: `fe80::` and the context ID.
fn made_up_v6(cid: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(cid))
}

/// The address of the other end of an accepted connection. `port` is its VMCI port.
pub(crate) fn of_peer(map: Option<&Map>, from: Machine<'_>, port: u32, sees: Sees) -> SocketAddr {
    let family = match sees {
        Sees::V4 | Sees::MappedV4 => Some(false),
        Sees::V6 => Some(true),
        Sees::Both => carried_family(port),
    };
    let known = map.and_then(|map| {
        map.address_of(from, family)
            // A client that used an IPv4 address which this map does not have.
            .or_else(|| if sees == Sees::Both { map.address_of(from, None) } else { None })
    });
    let cid = match from {
        Machine::Cid(cid) => cid,
        Machine::Unix(_) => 0,
    };
    let ip =
        known.unwrap_or_else(|| if sees == Sees::V6 { made_up_v6(cid).into() } else { made_up(cid).into() });
    SocketAddr::new(shown(ip, sees != Sees::V4), tcp_port(port))
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
        let peer = |cid, sees| of_peer(Some(&map), Machine::Cid(cid), 70_000, sees).to_string();
        assert_eq!(peer(12, Sees::V4), "10.0.0.7:4464");
        assert_eq!(peer(12, Sees::Both), "[::ffff:10.0.0.7]:4464");
        assert_eq!(peer(12, Sees::MappedV4), "[::ffff:10.0.0.7]:4464");
        assert_eq!(peer(12, Sees::V6), "[fe80::c]:4464", "never an IPv4 address");
        assert_eq!(peer(13, Sees::Both), "[fd00::8]:4464");
        assert_eq!(peer(13, Sees::V6), "[fd00::8]:4464");
        assert_eq!(peer(13, Sees::V4), "169.254.0.13:4464", "an IPv4 socket cannot show an IPv6 address");
        assert_eq!(peer(0x0001_0203, Sees::V4), "169.254.2.3:4464");
        assert_eq!(of_peer(None, Machine::Cid(5), 65_536, Sees::V4).to_string(), "169.254.0.5:1");
    }

    #[test]
    fn a_machine_of_both_families_appears_with_the_one_that_it_used() {
        let text = "10.0.0.7:* -> cid 12\n[fd00::7]:* -> cid 12";
        let map = Map::parse(text, std::path::Path::new("x")).unwrap();
        let peer = |port| of_peer(Some(&map), Machine::Cid(12), port, Sees::Both).to_string();
        assert_eq!(peer(carrying(40_000, false, 3)), "[::ffff:10.0.0.7]:40000");
        assert_eq!(peer(carrying(40_000, true, 7)), "[fd00::7]:40000");
        assert_eq!(peer(40_000), "[::ffff:10.0.0.7]:40000", "the first line, if nothing tells");
    }

    #[test]
    fn a_socket_sees_what_it_is_bound_to() {
        let sees = |ip: &str, only| Sees::at(ip.parse().unwrap(), only);
        assert_eq!(sees("0.0.0.0", false), Sees::V4);
        assert_eq!(sees("::", false), Sees::Both);
        assert_eq!(sees("::", true), Sees::V6);
        assert_eq!(sees("::1", false), Sees::V6);
        assert_eq!(sees("::ffff:10.0.0.6", false), Sees::MappedV4);
    }

    proptest! {
        #[test]
        fn a_source_port_is_carried(port: u16, v6: bool, variant in 0..VARIANTS) {
            let carrying = carrying(port, v6, variant);
            prop_assert_eq!(carried_family(carrying), Some(v6));
            prop_assert_eq!(tcp_port(carrying), port.max(1));
        }
    }
}
