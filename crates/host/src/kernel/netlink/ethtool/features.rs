//! Features of network cards: segmentation, merging, checksums, VLAN tags.

use std::collections::BTreeMap;
use std::io;

use taut_api::pnic::{Offload, OffloadFacts};

use super::{Attributes, Ethtool, bitset};

const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_FEATURES_NOCHANGE: u16 = 5;

/// A feature of a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Feature {
    /// True if it can be changed.
    pub(crate) is_changeable: bool,
    /// True if it is asked for. The kernel may leave it off all the same: most offloads need the
    /// one of checksums.
    pub(crate) is_wanted: bool,
    /// True if it is in use.
    pub(crate) is_active: bool,
}

/// All features that the kernel knows, by its names.
pub(crate) type Features = BTreeMap<String, Feature>;

impl Ethtool {
    /// Reads the features of a card.
    pub(crate) fn features(&mut self, card: u32) -> io::Result<Features> {
        let answer = self.ask(ETHTOOL_MSG_FEATURES_GET, card)?;
        Ok(answer.and_then(|answer| read(&answer.attrs().get_attr_handle())).unwrap_or_default())
    }

    /// Asks for features of a card to be on or off.
    pub(crate) fn set_features(&mut self, card: u32, wanted: &BTreeMap<String, bool>) -> io::Result<()> {
        let wanted = bitset::write(ETHTOOL_A_FEATURES_WANTED, wanted)?;
        self.change(ETHTOOL_MSG_FEATURES_SET, card, vec![wanted])
    }
}

pub(super) fn read(answer: &Attributes<'_>) -> Option<Features> {
    let [hardware, wanted, active, fixed] = [
        ETHTOOL_A_FEATURES_HW,
        ETHTOOL_A_FEATURES_WANTED,
        ETHTOOL_A_FEATURES_ACTIVE,
        ETHTOOL_A_FEATURES_NOCHANGE,
    ]
    .map(|kind| bitset::read(answer, kind));
    let (wanted, active, fixed) = (wanted?, active?, fixed.unwrap_or_default());
    // The mask of the first set has all features.
    let feature = |(name, can_change): (String, bool)| {
        let feature = Feature {
            is_changeable: can_change && !fixed.contains_key(&name),
            is_wanted: wanted.contains_key(&name),
            is_active: active.contains_key(&name),
        };
        (name, feature)
    };
    Some(hardware?.into_iter().map(feature).collect())
}

/// Returns the features that an offload consists of, under the kernel's names: those that
/// ethtool(8) counts to it. A card has some of them, and a kernel knows some of them.
pub(crate) const fn of_offload(offload: Offload) -> &'static [&'static str] {
    match offload {
        Offload::Tso => &[
            "tx-tcp-segmentation",
            "tx-tcp-ecn-segmentation",
            "tx-tcp-mangleid-segmentation",
            "tx-tcp6-segmentation",
            "tx-tcp-accecn-segmentation",
        ],
        Offload::Gso => &["tx-generic-segmentation"],
        Offload::Gro => &["rx-gro"],
        // Drivers name merging by the card itself, or by a virtual card's back end, one or the
        // other.
        Offload::Lro => &["rx-lro", "rx-gro-hw"],
        Offload::RxChecksum => &["rx-checksum"],
        Offload::TxChecksum => &[
            "tx-checksum-ipv4",
            "tx-checksum-ip-generic",
            "tx-checksum-ipv6",
            "tx-checksum-fcoe-crc",
            "tx-checksum-sctp",
        ],
        Offload::RxVlan => &["rx-vlan-hw-parse"],
        Offload::TxVlan => &["tx-vlan-hw-insert"],
    }
}

/// Returns the state of an offload; none if the kernel knows none of its features.
pub(crate) fn offload(features: &Features, offload: Offload) -> Option<OffloadFacts> {
    let mut parts = of_offload(offload).iter().filter_map(|name| features.get(*name)).peekable();
    parts.peek()?;
    let facts = OffloadFacts { on: false, fixed: true };
    Some(parts.fold(facts, |facts, part| OffloadFacts {
        on: facts.on || part.is_active,
        fixed: facts.fixed && !part.is_changeable,
    }))
}
