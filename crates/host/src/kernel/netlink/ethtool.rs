//! Settings of network cards that only their drivers know: interrupt moderation and merging
//! (the kernel's generic netlink family `ethtool`).
//!
//! Reading needs no privileges.

use std::io;

use neli::attr::Attribute as _;
use neli::consts::genl::{CtrlAttr, CtrlCmd};
use neli::consts::nl::{GenlId, NlmF};
use neli::consts::socket::NlFamily;
use neli::genl::{AttrTypeBuilder, GenlAttrHandle, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder};
use neli::types::{Buffer, GenlBuffer};
use taut_api::check::Moderation;

use super::Netlink;

// Numbers of <linux/ethtool_netlink.h>, which `neli` does not name.
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
/// The attribute with the card's name, in every request.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
const ETHTOOL_A_COALESCE_RX_USECS: u16 = 2;
const ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX: u16 = 11;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
/// Version of the family, and of the controller that knows the family's number.
const VERSION: u8 = 1;

type Answer = Genlmsghdr<u8, u16>;
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
        let name = attribute(CtrlAttr::FamilyName, "ethtool")?;
        let request = message(CtrlCmd::Getfamily, name)?;
        let answer = netlink.request(GenlId::Ctrl, NlmF::empty(), request)?;
        let answer = answer.ok_or(io::ErrorKind::InvalidData)?;
        let family = answer.attrs().get_attr_handle().get_attr_payload_as(CtrlAttr::FamilyId);
        Ok(Self { netlink, family: family.map_err(io::Error::other)? })
    }

    /// Reads a card's interrupt moderation; none if its driver has none.
    pub fn moderation(&mut self, card: &str) -> io::Result<Option<Moderation>> {
        let answer = self.ask(ETHTOOL_MSG_COALESCE_GET, card)?;
        Ok(moderation(&answer.attrs().get_attr_handle()))
    }

    /// Reads whether a card merges received segments (LRO or hardware GRO); none if unknown.
    pub fn merges(&mut self, card: &str) -> io::Result<Option<bool>> {
        let answer = self.ask(ETHTOOL_MSG_FEATURES_GET, card)?;
        Ok(merges(&answer.attrs().get_attr_handle()))
    }

    fn ask(&mut self, command: u8, card: &str) -> io::Result<Answer> {
        let name = attribute(ETHTOOL_A_HEADER_DEV_NAME, card)?;
        let header = attribute(ETHTOOL_A_HEADER, Buffer::new())?;
        let header = header.nest(&name).map_err(io::Error::other)?;
        let request = message(command, header)?;
        let answer = self.netlink.request(self.family, NlmF::empty(), request)?;
        answer.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn moderation(answer: &Attributes<'_>) -> Option<Moderation> {
    let rx_us = answer.get_attr_payload_as::<u32>(ETHTOOL_A_COALESCE_RX_USECS).ok();
    let adaptive = answer.get_attr_payload_as::<u8>(ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX).ok();
    if rx_us.is_none() && adaptive.is_none() {
        return None;
    }
    Some(Moderation { rx_us: rx_us.unwrap_or(0), adaptive_rx: adaptive.unwrap_or(0) != 0 })
}

fn merges(answer: &Attributes<'_>) -> Option<bool> {
    let active: Attributes<'_> = answer.get_nested_attributes(ETHTOOL_A_FEATURES_ACTIVE).ok()?;
    // Without a set bit, the list of bits is absent.
    let Ok(bits) = active.get_nested_attributes::<u16>(ETHTOOL_A_BITSET_BITS) else {
        return Some(false);
    };
    let of_bits = bits.get_attrs().iter();
    let mut set = of_bits.filter(|bit| *bit.nla_type().nla_type() == ETHTOOL_A_BITSET_BITS_BIT);
    Some(set.any(is_merging))
}

/// Drivers name merging by the card itself, or by a virtual card's back end, one or the other.
fn is_merging(bit: &Nlattr<u16, Buffer>) -> bool {
    let Ok(parts) = bit.get_attr_handle::<u16>() else { return false };
    let name = parts.get_attribute(ETHTOOL_A_BITSET_BIT_NAME).map(|name| name.payload().as_ref());
    [Some(&b"rx-lro\0"[..]), Some(b"rx-gro-hw\0")].contains(&name)
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

/// A request with one attribute.
fn message<C, T>(command: C, attribute: Nlattr<T, Buffer>) -> io::Result<Genlmsghdr<C, T>> {
    GenlmsghdrBuilder::default()
        .cmd(command)
        .version(VERSION)
        .attrs(GenlBuffer::from_iter([attribute]))
        .build()
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use neli::{FromBytesWithInput as _, ToBytes as _};
    use taut_tests::{Prerequisite, require_found};

    use super::*;

    fn nested(kind: u16, parts: &[Nlattr<u16, Buffer>]) -> Nlattr<u16, Buffer> {
        let empty = attribute(kind, Buffer::new()).unwrap();
        parts.iter().fold(empty, |whole, part| whole.nest(part).unwrap())
    }

    /// The attributes as the kernel sends them.
    fn bytes(attributes: &[Nlattr<u16, Buffer>]) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        for attribute in attributes {
            attribute.to_bytes(&mut bytes).unwrap();
        }
        bytes.into_inner()
    }

    /// Applies `read` to an answer of these bytes; none if they are no attributes.
    fn read<T>(bytes: &[u8], read: fn(&Attributes<'_>) -> Option<T>) -> Option<T> {
        let mut cursor = Cursor::new(bytes);
        let attributes = GenlBuffer::from_bytes_with_input(&mut cursor, bytes.len()).ok()?;
        read(&attributes.get_attr_handle())
    }

    #[test]
    fn answers_are_read() {
        let us = |us: u32| attribute(ETHTOOL_A_COALESCE_RX_USECS, us).unwrap();
        let adaptive = attribute(ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, 1_u8).unwrap();
        let fixed = Moderation { rx_us: 20, adaptive_rx: false };
        assert_eq!(read(&bytes(&[us(20)]), moderation), Some(fixed));
        let both = Moderation { rx_us: 0, adaptive_rx: true };
        assert_eq!(read(&bytes(&[us(0), adaptive]), moderation), Some(both));
        assert_eq!(read(&bytes(&[attribute(9, 0_u32).unwrap()]), moderation), None);

        let bit = |name: &str| {
            let name = attribute(ETHTOOL_A_BITSET_BIT_NAME, name).unwrap();
            nested(ETHTOOL_A_BITSET_BITS_BIT, &[name])
        };
        let active = |bits: &[Nlattr<u16, Buffer>]| {
            bytes(&[nested(ETHTOOL_A_FEATURES_ACTIVE, &[nested(ETHTOOL_A_BITSET_BITS, bits)])])
        };
        assert_eq!(read(&active(&[bit("rx-gro"), bit("rx-lro")]), merges), Some(true));
        assert_eq!(read(&active(&[bit("rx-gro-hw")]), merges), Some(true));
        assert_eq!(read(&active(&[bit("rx-gro")]), merges), Some(false));
        assert_eq!(read(&bytes(&[nested(ETHTOOL_A_FEATURES_ACTIVE, &[])]), merges), Some(false));
        assert_eq!(read(&[], merges), None);
    }

    #[test]
    fn an_answer_that_is_cut_off_is_not_read() {
        let whole = bytes(&[attribute(ETHTOOL_A_COALESCE_RX_USECS, 7_u32).unwrap()]);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length], moderation), None, "{length} bytes");
        }
        assert_eq!(read(&[0, 0, 1, 0, 1, 1], moderation), None, "an attribute of length 0");
    }

    #[test]
    fn this_machine_s_kernel_answers_about_its_loopback() {
        // Kernels before 5.6, and some sandboxes, lack the family.
        let opened = Ethtool::open().map_err(|error| error.to_string());
        let Some(mut ethtool) = require_found(Prerequisite::EthtoolNetlink, opened) else { return };
        // The loopback has no moderation on any kernel.
        assert!(!matches!(ethtool.moderation("lo"), Ok(Some(_))));
        assert!(ethtool.moderation("taut-absent").is_err());
        assert!(ethtool.merges("taut-absent").is_err());
        // The errors before leave nothing behind that the next answer could be mistaken for.
        assert_eq!(ethtool.merges("lo").unwrap(), Some(false));
    }
}
