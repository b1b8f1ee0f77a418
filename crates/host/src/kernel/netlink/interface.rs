//! Properties of a network interface (rtnetlink).

use std::io;

use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Arphrd, Iff, Ifla, IflaInfo, Rtm};
use neli::rtnl::Ifinfomsg;

use super::Links;
use super::links::link;

/// Attribute of [`Ifla::Xdp`] that tells how an XDP program is attached; 0 if there is none.
const IFLA_XDP_ATTACHED: u16 = 2;

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
    /// Largest MTU that its driver states, if it states one.
    max_mtu: Option<u32>,
    /// True if the interface is set up.
    pub is_up: bool,
    /// True if there is a carrier: a cable with something at its other end.
    pub has_carrier: bool,
    /// Kind, such as `veth` or `bridge`; `None` for most hardware.
    pub kind: Option<String>,
    /// Number of the bridge or bond that it is a part of.
    pub master: Option<u32>,
    /// True if an XDP program is attached to it.
    pub has_xdp: bool,
    /// Number of the interface of the same namespace on which it is stacked.
    pub(super) lower: Option<u32>,
}

impl Links {
    /// Returns the interface `name`; `None` if there is none. An alternative name finds it as well,
    /// so its [`Interface::name`] may be another one.
    pub fn interface(&mut self, name: &str) -> io::Result<Option<Interface>> {
        match self.index(name)? {
            Some(index) => self.interface_by_index(index),
            None => Ok(None),
        }
    }

    /// Returns the largest MTU that an interface can have; `None` without a known limit. A VLAN or
    /// macvlan can have that of the interface below, whatever its driver states.
    pub fn largest_mtu(&mut self, interface: &Interface) -> io::Result<Option<u32>> {
        let is_stacked = matches!(interface.kind.as_deref(), Some("vlan" | "macvlan" | "macvtap"));
        let below = match interface.lower.filter(|_| is_stacked) {
            Some(lower) => self.interface_by_index(lower)?.map(|lower| lower.mtu),
            None => None,
        };
        Ok([interface.max_mtu, below].into_iter().flatten().min())
    }

    /// Returns all interfaces of the namespace.
    pub(super) fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        // Number 0 stands for all.
        let request: Ifinfomsg = link(0)?.build().map_err(io::Error::other)?;
        Ok(self.0.list(Rtm::Getlink, request)?.iter().map(interface_of).collect())
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
}

fn interface_of(message: &Ifinfomsg) -> Interface {
    let attributes = message.rtattrs().get_attr_handle();
    let number = |kind| attributes.get_attr_payload_as::<u32>(kind).ok();
    let mac = attributes.get_attribute(Ifla::Address);
    let mac = mac.and_then(|attribute| attribute.rta_payload().as_ref().try_into().ok());
    let flags = *message.ifi_flags();
    let is_ethernet = *message.ifi_type() == Arphrd::Ether && !flags.contains(Iff::LOOPBACK);
    let info = attributes.get_nested_attributes::<IflaInfo>(Ifla::Linkinfo).ok();
    let xdp = attributes.get_nested_attributes::<u16>(Ifla::Xdp).ok();
    let xdp = xdp.and_then(|xdp| xdp.get_attr_payload_as::<u8>(IFLA_XDP_ATTACHED).ok());
    let elsewhere = attributes.get_attribute(Ifla::LinkNetnsid).is_some();
    Interface {
        index: message.ifi_index().cast_unsigned(),
        name: attributes.get_attr_payload_as_with_len::<String>(Ifla::Ifname).unwrap_or_default(),
        mac: mac.filter(|_| is_ethernet),
        mtu: number(Ifla::Mtu).unwrap_or(0),
        max_mtu: number(Ifla::MaxMtu).filter(|most| *most > 0),
        is_up: flags.contains(Iff::UP),
        // The flags would tell it up to a second late.
        has_carrier: attributes.get_attr_payload_as::<u8>(Ifla::Carrier).is_ok_and(|carrier| carrier != 0),
        kind: info.and_then(|info| info.get_attr_payload_as_with_len::<String>(IflaInfo::Kind).ok()),
        master: number(Ifla::Master),
        has_xdp: xdp.is_some_and(|attached| attached != 0),
        lower: number(Ifla::Link).filter(|_| !elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_no_ethernet_interface() {
        let mut links = Links::open().unwrap();
        assert_eq!(links.interface("taut-absent").unwrap(), None);
        let loopback = links.interface("lo").unwrap().unwrap();
        assert_eq!((loopback.index, loopback.name.as_str(), loopback.mac), (1, "lo", None));
        assert!(links.interfaces().unwrap().contains(&loopback));
    }
}
