//! Settings of network cards that only their drivers know (the kernel's generic netlink family
//! `ethtool`): [`link`] modes, numbers such as the sizes of rings ([`parameters`]), and
//! [`features`], which users know as offloads.
//!
//! Reading needs no privileges.

mod bitset;
pub(crate) mod features;
pub(crate) mod link;
pub(crate) mod parameters;
#[cfg(test)]
mod tests;

use std::io;

use neli::consts::genl::{CtrlAttr, CtrlCmd};
use neli::consts::nl::{GenlId, NlmF};
use neli::consts::socket::NlFamily;
use neli::genl::{AttrTypeBuilder, GenlAttrHandle, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder};
use neli::types::{Buffer, GenlBuffer};

use super::{Netlink, is_unsupported};

// Numbers of <linux/ethtool_netlink.h>, which `neli` does not name.
/// The attribute with the number of the card's interface, in every request.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
/// The acknowledgement of a change is the only answer.
const ETHTOOL_FLAG_OMIT_REPLY: u32 = 2;
/// Version of the family, and of the controller that knows the family's number.
const VERSION: u8 = 1;

type Answer = Genlmsghdr<u8, u16>;
type Attribute = Nlattr<u16, Buffer>;
type Attributes<'a> = GenlAttrHandle<'a, u16>;

/// A socket to the family. Network cards are those of the opening thread's network namespace.
pub struct Ethtool {
    netlink: Netlink,
    /// The family's number, which the kernel chooses at its start.
    family: u16,
}

impl Ethtool {
    /// Opens a socket and asks for the family's number.
    pub fn open() -> io::Result<Self> {
        let mut netlink = Netlink::open(NlFamily::Generic)?;
        netlink.explain_refusals()?;
        let name = attribute(CtrlAttr::FamilyName, "ethtool")?;
        let request = message(CtrlCmd::Getfamily, [name])?;
        let answer = netlink.request(GenlId::Ctrl, NlmF::empty(), request)?;
        let answer = answer.ok_or(io::ErrorKind::InvalidData)?;
        let family = answer.attrs().get_attr_handle().get_attr_payload_as(CtrlAttr::FamilyId);
        Ok(Self { netlink, family: family.map_err(io::Error::other)? })
    }

    /// Asks for something about the card of this interface; none if its driver does not have it
    /// (`EOPNOTSUPP`).
    fn ask(&mut self, command: u8, card: u32) -> io::Result<Option<Answer>> {
        let index = attribute(ETHTOOL_A_HEADER_DEV_INDEX, card)?;
        let request = message(command, [nested(ETHTOOL_A_HEADER, &[index])?])?;
        match self.netlink.request(self.family, NlmF::empty(), request) {
            Ok(answer) => answer.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Changes something of a card, and waits until the driver has done so.
    fn change(&mut self, command: u8, card: u32, changes: Vec<Attribute>) -> io::Result<()> {
        let index = attribute(ETHTOOL_A_HEADER_DEV_INDEX, card)?;
        let flags = attribute(ETHTOOL_A_HEADER_FLAGS, ETHTOOL_FLAG_OMIT_REPLY)?;
        let header = nested(ETHTOOL_A_HEADER, &[index, flags])?;
        let request = message(command, [header].into_iter().chain(changes))?;
        self.netlink.request(self.family, NlmF::ACK, request).map(drop)
    }
}

/// An attribute; `&str` gets the terminating zero that the kernel expects.
fn attribute<T, P>(kind: T, value: P) -> io::Result<Nlattr<T, Buffer>>
where
    T: neli::Size,
    P: neli::Size + neli::ToBytes,
{
    let kind = AttrTypeBuilder::default().nla_type(kind).build().map_err(io::Error::other)?;
    NlattrBuilder::default().nla_type(kind).nla_payload(value).build().map_err(io::Error::other)
}

/// An attribute without a value.
fn flag(kind: u16) -> io::Result<Attribute> {
    attribute(kind, Buffer::new())
}

/// An attribute that consists of others.
fn nested(kind: u16, parts: &[Attribute]) -> io::Result<Attribute> {
    parts.iter().try_fold(flag(kind)?, |whole, part| whole.nest(part).map_err(io::Error::other))
}

/// A request with these attributes.
fn message<C, T>(
    command: C,
    attributes: impl IntoIterator<Item = Nlattr<T, Buffer>>,
) -> io::Result<Genlmsghdr<C, T>> {
    GenlmsghdrBuilder::default()
        .cmd(command)
        .version(VERSION)
        .attrs(GenlBuffer::from_iter(attributes))
        .build()
        .map_err(io::Error::other)
}
