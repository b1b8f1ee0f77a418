//! Properties of a network interface, and the uses that the host has for it (rtnetlink).

use std::io;
use std::net::IpAddr;

use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Arphrd, Iff, Ifla, IflaInfo, RtAddrFamily, RtTable, Rta, Rtm, Rtn, Rtprot};
use neli::rtnl::{Ifinfomsg, Rtmsg};
use nix::ifaddrs::getifaddrs;
use taut_api::uplink::InterfaceUse;

use super::Links;
use super::links::{link, route};

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Number that the kernel has given it for its life.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// Ethernet address, if this is an Ethernet interface.
    pub mac: Option<[u8; 6]>,
    /// Bytes of the longest packet that the interface sends, without the Ethernet header.
    pub mtu: u32,
    /// True if the interface is set up.
    pub is_up: bool,
    /// True if there is a carrier: a cable with something at its other end.
    pub has_carrier: bool,
    /// Kind, such as `veth` or `bridge`; `None` for most hardware.
    pub kind: Option<String>,
    /// Number of the bridge or bond that it is a part of.
    pub master: Option<u32>,
    /// Number of the interface of the same namespace on which it is stacked.
    lower: Option<u32>,
}

impl Links {
    /// Returns the interface `name`; `None` if there is none.
    pub fn interface(&mut self, name: &str) -> io::Result<Option<Interface>> {
        match self.index(name)? {
            Some(index) => self.interface_by_index(index),
            None => Ok(None),
        }
    }

    /// Returns the interface with this number; `None` if there is none.
    pub fn interface_by_index(&mut self, index: u32) -> io::Result<Option<Interface>> {
        let request: Ifinfomsg = link(index)?.build().map_err(io::Error::other)?;
        match self.0.request(Rtm::Getlink, NlmF::empty(), request) {
            Ok(answer) => Ok(answer.as_ref().map(interface_of)),
            Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns what the host uses an interface for.
    pub fn uses(&mut self, interface: &Interface) -> io::Result<Vec<InterfaceUse>> {
        // Number 0 stands for all.
        let request: Ifinfomsg = link(0)?.build().map_err(io::Error::other)?;
        let all: Vec<Interface> = self.0.list(Rtm::Getlink, request)?.iter().map(interface_of).collect();
        let master = all.iter().filter(|other| Some(other.index) == interface.master);
        let master = master.map(|other| InterfaceUse::Member {
            of: other.name.clone(),
            kind: other.kind.clone().unwrap_or_else(|| "interface".to_owned()),
        });
        // The two ends of a cable name each other, too.
        let above = all
            .iter()
            .filter(|other| other.lower == Some(interface.index) && other.kind.as_deref() != Some("veth"));
        let above = above.map(|other| InterfaceUse::Below(other.name.clone()));
        let mut uses: Vec<InterfaceUse> = master.chain(above).collect();
        for address in getifaddrs()?.filter(|found| found.interface_name == interface.name) {
            let Some(address) = address.address else { continue };
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            let v6 = address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
            uses.extend(v4.or(v6).filter(|ip| !is_automatic(ip)).map(InterfaceUse::Address));
        }
        if self.has_route(interface.index)? {
            uses.push(InterfaceUse::Route);
        }
        Ok(uses)
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
            let out = route.rtattrs().get_attr_handle().get_attr_payload_as::<u32>(Rta::Oif).ok();
            out == Some(index) && *route.rtm_protocol() != Rtprot::Kernel
        }))
    }
}

/// Returns whether an interface gives itself such an address when it is set up.
fn is_automatic(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfe80)
}

fn interface_of(message: &Ifinfomsg) -> Interface {
    let attributes = message.rtattrs().get_attr_handle();
    let number = |kind| attributes.get_attr_payload_as::<u32>(kind).ok();
    let mac = attributes.get_attribute(Ifla::Address);
    let mac = mac.and_then(|attribute| attribute.rta_payload().as_ref().try_into().ok());
    let flags = *message.ifi_flags();
    let is_ethernet = *message.ifi_type() == Arphrd::Ether && !flags.contains(Iff::LOOPBACK);
    let info = attributes.get_nested_attributes::<IflaInfo>(Ifla::Linkinfo).ok();
    let elsewhere = attributes.get_attribute(Ifla::LinkNetnsid).is_some();
    Interface {
        index: message.ifi_index().cast_unsigned(),
        name: attributes.get_attr_payload_as_with_len::<String>(Ifla::Ifname).unwrap_or_default(),
        mac: mac.filter(|_| is_ethernet),
        mtu: number(Ifla::Mtu).unwrap_or(0),
        is_up: flags.contains(Iff::UP),
        // The flags would tell it up to a second late.
        has_carrier: attributes.get_attr_payload_as::<u8>(Ifla::Carrier).is_ok_and(|carrier| carrier != 0),
        kind: info.and_then(|info| info.get_attr_payload_as_with_len::<String>(IflaInfo::Kind).ok()),
        master: number(Ifla::Master),
        lower: number(Ifla::Link).filter(|_| !elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_no_ethernet_interface_and_has_an_address() {
        let mut links = Links::open().unwrap();
        assert_eq!(links.interface("taut-absent").unwrap(), None);
        let loopback = links.interface("lo").unwrap().unwrap();
        assert_eq!((loopback.index, loopback.name.as_str(), loopback.mac), (1, "lo", None));
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
}
