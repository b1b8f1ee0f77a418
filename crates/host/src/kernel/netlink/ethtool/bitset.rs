//! Sets of bits with names, as the family sends and takes them: in the verbose form, which is a
//! list of bits.

use std::collections::BTreeMap;
use std::io;

use neli::attr::Attribute as _;
use neli::genl::Nlattr;
use neli::types::Buffer;

use super::{Attribute, Attributes, attribute, flag, nested};

const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

/// Reads a set with a mask: the bits of the mask, and whether each is set. Of a set without a mask,
/// the bits are those that are set. None if it is absent.
pub(super) fn read(answer: &Attributes<'_>, kind: u16) -> Option<BTreeMap<String, bool>> {
    let set: Attributes<'_> = answer.get_nested_attributes(kind).ok()?;
    let are_set = set.get_attribute(ETHTOOL_A_BITSET_NOMASK).is_some();
    // Without a bit, the list of bits is absent.
    let Ok(bits) = set.get_nested_attributes::<u16>(ETHTOOL_A_BITSET_BITS) else {
        return Some(BTreeMap::new());
    };
    let bits = bits.get_attrs().iter().filter(|bit| *bit.nla_type().nla_type() == ETHTOOL_A_BITSET_BITS_BIT);
    Some(bits.filter_map(|bit| read_bit(bit, are_set)).collect())
}

fn read_bit(bit: &Nlattr<u16, Buffer>, is_set: bool) -> Option<(String, bool)> {
    let parts = bit.get_attr_handle::<u16>().ok()?;
    let name: &[u8] = parts.get_attribute(ETHTOOL_A_BITSET_BIT_NAME)?.payload().as_ref();
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    let is_set = is_set || parts.get_attribute(ETHTOOL_A_BITSET_BIT_VALUE).is_some();
    Some((String::from_utf8_lossy(name).into_owned(), is_set))
}

/// Makes a set that changes these bits and leaves all others as they are.
pub(super) fn write(kind: u16, bits: &BTreeMap<String, bool>) -> io::Result<Attribute> {
    let bit = |(name, is_set): (&String, &bool)| {
        let mut parts = vec![attribute(ETHTOOL_A_BITSET_BIT_NAME, name.as_str())?];
        if *is_set {
            parts.push(flag(ETHTOOL_A_BITSET_BIT_VALUE)?);
        }
        nested(ETHTOOL_A_BITSET_BITS_BIT, &parts)
    };
    let bits = bits.iter().map(bit).collect::<io::Result<Vec<_>>>()?;
    nested(kind, &[nested(ETHTOOL_A_BITSET_BITS, &bits)?])
}
