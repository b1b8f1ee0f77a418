//! Uses that the host has for a network interface (rtnetlink).

use std::io::{self, Cursor};
use std::net::IpAddr;

use neli::FromBytesWithInput as _;
use neli::consts::rtnl::{Ifa, Nda, Ntf, RtAddrFamily, RtScope, RtTable, Rta, Rtm, Rtn, Rtprot};
use neli::rtnl::{Ifaddrmsg, IfaddrmsgBuilder, Ndmsg, Rtmsg};
use neli::types::Buffer;
use nix::libc;
use taut_api::MacAddr;
use taut_api::uplink::InterfaceUse;

use super::links::route;
use super::{Interface, Links};

/// Bytes of `struct ndmsg` (<linux/neighbour.h>).
const NDMSG: usize = 12;
/// Bytes of `struct rtnexthop` (<linux/rtnetlink.h>): length, flags, hops, interface.
const NEXT_HOP: usize = 8;

impl Links {
    /// Returns what the host uses an interface for.
    pub fn uses(&mut self, interface: &Interface) -> io::Result<Vec<InterfaceUse>> {
        let all = self.interfaces()?;
        let master = all.iter().filter(|other| Some(other.index) == interface.master);
        let master = master.map(|other| InterfaceUse::Member {
            of: other.name.clone(),
            kind: other.kind.clone().unwrap_or_else(|| "interface".to_owned()),
        });
        // The two ends of a cable name each other, too.
        let above = all
            .iter()
            .filter(|other| other.lower == Some(interface.index) && other.kind.as_deref() != Some("veth"));
        let above: Vec<_> = above.map(|other| InterfaceUse::Below(other.name.clone())).collect();
        let mut uses: Vec<InterfaceUse> = master.collect();
        if above.is_empty() {
            uses.extend(self.foreign_addresses(interface)?.into_iter().map(InterfaceUse::BelowElsewhere));
        }
        uses.extend(above);
        let addresses = self.addresses(interface.index)?;
        uses.extend(addresses.into_iter().filter(|ip| !is_automatic(ip)).map(InterfaceUse::Address));
        if self.has_route(interface.index)? {
            uses.push(InterfaceUse::Route);
        }
        Ok(uses)
    }

    /// Returns the IP addresses of an interface.
    fn addresses(&mut self, index: u32) -> io::Result<Vec<IpAddr>> {
        let request: Ifaddrmsg = IfaddrmsgBuilder::default()
            .ifa_family(RtAddrFamily::Unspecified)
            .ifa_prefixlen(0)
            .ifa_scope(RtScope::Universe)
            .ifa_index(0)
            .build()
            .map_err(io::Error::other)?;
        let all = self.0.list(Rtm::Getaddr, request)?;
        Ok(all.iter().filter(|address| *address.ifa_index() == index).filter_map(address_of).collect())
    }

    /// Returns whether a route leads through an interface, other than those that the kernel makes
    /// for each.
    fn has_route(&mut self, index: u32) -> io::Result<bool> {
        let request: Rtmsg = route(RtAddrFamily::Unspecified)
            .rtm_table(RtTable::Unspec)
            .rtm_protocol(Rtprot::Unspec)
            .rtm_type(Rtn::Unspec)
            .build()
            .map_err(io::Error::other)?;
        let routes = self.0.list(Rtm::Getroute, request)?;
        Ok(routes.iter().any(|route| {
            let attributes = route.rtattrs().get_attr_handle();
            let out = attributes.get_attr_payload_as::<u32>(Rta::Oif).ok();
            let several = attributes.get_attribute(Rta::Multipath);
            let mut hops = several.into_iter().flat_map(|hops| next_hops(hops.rta_payload().as_ref()));
            (out == Some(index) || hops.any(|hop| hop == index)) && *route.rtm_protocol() != Rtprot::Kernel
        }))
    }

    /// Returns the Ethernet addresses for which an interface receives besides its own. They belong
    /// to interfaces that are stacked on it in other network namespaces; the kernel shows those in
    /// no other way from this one. A vxlan interface has the addresses of its peers instead.
    fn foreign_addresses(&mut self, interface: &Interface) -> io::Result<Vec<MacAddr>> {
        if interface.kind.as_deref() == Some("vxlan") {
            return Ok(Vec::new());
        }
        // The library's type for these messages cannot be copied, so they are read as bytes.
        let mut request = vec![0; NDMSG];
        request[0] = libc::AF_BRIDGE as u8;
        let answers = self.0.list(Rtm::Getneigh, Buffer::from(request))?;
        let entries = answers.iter().map(|answer| {
            let bytes: &[u8] = answer.as_ref();
            Ndmsg::from_bytes_with_input(&mut Cursor::new(bytes), bytes.len()).map_err(io::Error::other)
        });
        let entries = entries.collect::<io::Result<Vec<_>>>()?;
        let own = |entry: &Ndmsg| {
            *entry.ndm_index() == interface.index.cast_signed() && entry.ndm_flags().contains(Ntf::SELF)
        };
        let address = |entry: Ndmsg| {
            let attributes = entry.rtattrs().get_attr_handle();
            let bytes = attributes.get_attribute(Nda::Lladdr)?.rta_payload().as_ref().try_into().ok()?;
            Some(MacAddr(bytes)).filter(|mac| mac.is_assignable() && Some(mac.0) != interface.mac)
        };
        Ok(entries.into_iter().filter(own).filter_map(address).collect())
    }
}

/// Returns the interfaces of a route with several next hops.
fn next_hops(mut hops: &[u8]) -> Vec<u32> {
    let mut interfaces = Vec::new();
    while let Some((&[a, b, _, _, interface @ ..], _)) = hops.split_first_chunk::<NEXT_HOP>() {
        interfaces.push(u32::from_ne_bytes(interface));
        let length = usize::from(u16::from_ne_bytes([a, b])).next_multiple_of(4);
        hops = if length < NEXT_HOP { &[] } else { hops.get(length..).unwrap_or_default() };
    }
    interfaces
}

/// Returns the own address of an interface, not that of its peer.
fn address_of(message: &Ifaddrmsg) -> Option<IpAddr> {
    let attributes = message.rtattrs().get_attr_handle();
    let own = attributes.get_attribute(Ifa::Local).or_else(|| attributes.get_attribute(Ifa::Address))?;
    let bytes: &[u8] = own.rta_payload().as_ref();
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Returns whether an interface gives itself such an address when it is set up.
fn is_automatic(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfe80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_an_address() {
        let mut links = Links::open().unwrap();
        let loopback = links.interface("lo").unwrap().unwrap();
        if loopback.is_up {
            let address = InterfaceUse::Address(IpAddr::from([127, 0, 0, 1]));
            assert!(links.uses(&loopback).unwrap().contains(&address));
        }
    }

    #[test]
    fn the_address_that_an_interface_gives_itself_is_no_use() {
        for (ip, automatic) in
            [("fe80::1", true), ("febf::1", true), ("fec0::1", false), ("169.254.0.1", false)]
        {
            assert_eq!(is_automatic(&ip.parse().unwrap()), automatic, "{ip}");
        }
    }

    #[test]
    fn all_next_hops_of_a_route_are_read() {
        let hop = |length: u16, interface: u32| {
            let mut hop = [&length.to_ne_bytes()[..], &[0, 0], &interface.to_ne_bytes()].concat();
            hop.resize(usize::from(length).next_multiple_of(4).max(NEXT_HOP), 0);
            hop
        };
        assert_eq!(next_hops(&[hop(8, 3), hop(16, 4), hop(14, 5), hop(8, 6)].concat()), [3, 4, 5, 6]);
        assert_eq!(next_hops(&hop(16, 7)[..12]), [7], "cut off");
        assert_eq!(next_hops(&[hop(0, 8), hop(8, 9)].concat()), [8], "a length of 0 ends the list");
        assert!(next_hops(&[1, 2, 3]).is_empty());
    }
}
