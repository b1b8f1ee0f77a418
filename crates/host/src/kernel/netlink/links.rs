//! Network interfaces: state, MAC address, MTU, IP addresses, default route (rtnetlink).

use std::io;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Ifa, Ifla, RtAddrFamily, RtScope, RtTable, Rta, Rtm, Rtn, Rtprot};
use neli::consts::socket::NlFamily;
use neli::rtnl::{
    Ifaddrmsg, IfaddrmsgBuilder, Ifinfomsg, IfinfomsgBuilder, RtattrBuilder, Rtmsg, RtmsgBuilder,
};
use neli::types::{Buffer, RtBuffer};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use super::Netlink;

/// The interfaces of one network namespace: that of the thread which opened this.
pub struct Links(pub(super) Netlink);

impl Links {
    /// The kernel's number of the loopback interface in every network namespace.
    pub const LOOPBACK: u32 = 1;

    /// Opens a routing socket.
    pub fn open() -> io::Result<Self> {
        Netlink::open(NlFamily::Route).map(Self)
    }

    /// Returns the kernel's number of the interface `name`; none if there is no such interface.
    pub fn index(&self, name: &str) -> io::Result<Option<u32>> {
        match if_nametoindex(name) {
            Ok(index) => Ok(Some(index)),
            Err(Errno::ENODEV) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets an interface up.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let message = link(index)?.up();
        self.change_link(Rtm::Newlink, message)
    }

    /// Sets an interface down.
    pub fn set_down(&mut self, index: u32) -> io::Result<()> {
        let message = link(index)?.down();
        self.change_link(Rtm::Newlink, message)
    }

    /// Sets the MAC address of an interface.
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        let address = RtattrBuilder::default().rta_type(Ifla::Address).rta_payload(mac).build();
        let attributes = RtBuffer::from_iter([address.map_err(io::Error::other)?]);
        let message = link(index)?.rtattrs(attributes);
        self.change_link(Rtm::Newlink, message)
    }

    /// Sets the MTU of an interface.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        let mtu = RtattrBuilder::default().rta_type(Ifla::Mtu).rta_payload(mtu).build();
        let attributes = RtBuffer::from_iter([mtu.map_err(io::Error::other)?]);
        let message = link(index)?.rtattrs(attributes);
        self.change_link(Rtm::Newlink, message)
    }

    /// Gives an interface an IPv4 address. An address that it has already is kept.
    pub fn set_ip(&mut self, index: u32, ip: Ipv4Net) -> io::Result<()> {
        // IFA_ADDRESS is the peer's address on point-to-point links, and the own one elsewhere.
        let attribute =
            |kind| RtattrBuilder::default().rta_type(kind).rta_payload(ip.addr().octets()).build();
        let attributes: Result<RtBuffer<Ifa, Buffer>, _> =
            [Ifa::Local, Ifa::Address].into_iter().map(attribute).collect();
        let message: Ifaddrmsg = IfaddrmsgBuilder::default()
            .ifa_family(RtAddrFamily::Inet)
            .ifa_prefixlen(ip.prefix_len())
            .ifa_scope(RtScope::Universe)
            .ifa_index(index)
            .rtattrs(attributes.map_err(io::Error::other)?)
            .build()
            .map_err(io::Error::other)?;
        let flags = NlmF::ACK | NlmF::CREATE | NlmF::REPLACE;
        self.0.request(Rtm::Newaddr, flags, message).map(drop)
    }

    /// Sets the IPv4 default route to a gateway that an interface reaches, in place of another one.
    pub fn set_gateway(&mut self, gateway: Ipv4Addr) -> io::Result<()> {
        let attribute = RtattrBuilder::default().rta_type(Rta::Gateway).rta_payload(gateway.octets()).build();
        let attributes = RtBuffer::from_iter([attribute.map_err(io::Error::other)?]);
        let message: Rtmsg = route(RtAddrFamily::Inet)
            .rtm_table(RtTable::Main)
            .rtm_protocol(Rtprot::Boot)
            .rtm_type(Rtn::Unicast)
            .rtattrs(attributes)
            .build()
            .map_err(io::Error::other)?;
        let flags = NlmF::ACK | NlmF::CREATE | NlmF::REPLACE;
        self.0.request(Rtm::Newroute, flags, message).map(drop)
    }

    /// Removes an interface.
    pub fn remove(&mut self, index: u32) -> io::Result<()> {
        let message = link(index)?;
        self.change_link(Rtm::Dellink, message)
    }

    fn change_link(&mut self, kind: Rtm, message: IfinfomsgBuilder) -> io::Result<()> {
        let message: Ifinfomsg = message.build().map_err(io::Error::other)?;
        self.0.request(kind, NlmF::ACK, message).map(drop)
    }
}

/// A message about one interface, without any change to it yet.
pub(super) fn link(index: u32) -> io::Result<IfinfomsgBuilder> {
    let index = index.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(IfinfomsgBuilder::default().ifi_family(RtAddrFamily::Unspecified).ifi_index(index))
}

/// A message about routes to everywhere, without table, protocol and type yet.
pub(super) fn route(family: RtAddrFamily) -> RtmsgBuilder {
    RtmsgBuilder::default()
        .rtm_family(family)
        .rtm_dst_len(0)
        .rtm_src_len(0)
        .rtm_tos(0)
        .rtm_scope(RtScope::Universe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_its_number() {
        let links = Links::open().unwrap();
        assert_eq!(links.index("lo").unwrap(), Some(Links::LOOPBACK));
        assert_eq!(links.index("taut-absent").unwrap(), None);
    }

    #[test]
    fn the_kernel_s_refusal_keeps_its_number() {
        // Without privileges the kernel says EPERM, otherwise that there is no such interface.
        let error = Links::open().unwrap().set_up(i32::MAX.cast_unsigned()).unwrap_err();
        let refusals = [nix::libc::EPERM, nix::libc::ENODEV];
        assert!(refusals.contains(&error.raw_os_error().unwrap()), "{error}");
    }
}
