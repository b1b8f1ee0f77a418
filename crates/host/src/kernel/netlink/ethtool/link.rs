//! Speed, duplex mode and autonegotiation of network cards.

use std::collections::BTreeMap;
use std::io;

use neli::genl::Nlattr;
use neli::types::Buffer;
use taut_api::pnic::{Duplex, LinkMode};

use super::{Attributes, Ethtool, attribute, bitset};

const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_MSG_LINKMODES_SET: u8 = 5;
const ETHTOOL_A_LINKMODES_AUTONEG: u16 = 2;
const ETHTOOL_A_LINKMODES_OURS: u16 = 3;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
const ETHTOOL_A_LINKMODES_DUPLEX: u16 = 6;
const DUPLEX_HALF: u8 = 0;
const DUPLEX_FULL: u8 = 1;

/// The link of a card: as it is, or as it is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct LinkSettings {
    /// Speed and duplex mode are negotiated.
    pub(crate) autoneg: bool,
    /// Speed in Mbit/s; none if it is unknown, or left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) speed_mbit: Option<u32>,
    /// Duplex mode; none in the same cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duplex: Option<Duplex>,
    /// Modes that the card supports, by the kernel's names, and whether each is offered to the
    /// peer. Some are no speeds, such as `Autoneg` and `Pause`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) modes: BTreeMap<String, bool>,
}

impl Ethtool {
    /// Reads the link of a card; none if its driver has no such settings.
    pub(crate) fn link(&mut self, card: u32) -> io::Result<Option<LinkSettings>> {
        let answer = self.ask(ETHTOOL_MSG_LINKMODES_GET, card)?;
        Ok(answer.and_then(|answer| read(&answer.attrs().get_attr_handle())))
    }

    /// Has a device without a cable, such as a TAP device, state this speed in Mbit/s, full duplex.
    ///
    /// # Errors
    /// The kernel refuses it, or knows no such requests (before Linux 5.6).
    pub fn state_speed(&mut self, card: u32, speed_mbit: u32) -> io::Result<()> {
        let (speed_mbit, duplex) = (Some(speed_mbit), Some(Duplex::Full));
        self.set_link(card, &LinkSettings { speed_mbit, duplex, ..LinkSettings::default() })
    }

    /// Changes the link of a card. What is none or empty stays as it is.
    pub(crate) fn set_link(&mut self, card: u32, link: &LinkSettings) -> io::Result<()> {
        let changes = write(link)?;
        self.change(ETHTOOL_MSG_LINKMODES_SET, card, changes)
    }
}

pub(super) fn read(answer: &Attributes<'_>) -> Option<LinkSettings> {
    let autoneg = answer.get_attr_payload_as::<u8>(ETHTOOL_A_LINKMODES_AUTONEG).ok()?;
    // The kernel has u32::MAX for an unknown speed.
    let speed = answer.get_attr_payload_as::<u32>(ETHTOOL_A_LINKMODES_SPEED).ok();
    let duplex = match answer.get_attr_payload_as::<u8>(ETHTOOL_A_LINKMODES_DUPLEX) {
        Ok(DUPLEX_HALF) => Some(Duplex::Half),
        Ok(DUPLEX_FULL) => Some(Duplex::Full),
        _ => None,
    };
    Some(LinkSettings {
        autoneg: autoneg != 0,
        speed_mbit: speed.filter(|speed| ![0, u32::MAX].contains(speed)),
        duplex,
        modes: bitset::read(answer, ETHTOOL_A_LINKMODES_OURS).unwrap_or_default(),
    })
}

pub(super) fn write(link: &LinkSettings) -> io::Result<Vec<Nlattr<u16, Buffer>>> {
    let mut changes = vec![attribute(ETHTOOL_A_LINKMODES_AUTONEG, u8::from(link.autoneg))?];
    if !link.modes.is_empty() {
        changes.push(bitset::write(ETHTOOL_A_LINKMODES_OURS, &link.modes)?);
    }
    if let Some(speed) = link.speed_mbit {
        changes.push(attribute(ETHTOOL_A_LINKMODES_SPEED, speed)?);
    }
    if let Some(duplex) = link.duplex {
        let duplex = if duplex == Duplex::Half { DUPLEX_HALF } else { DUPLEX_FULL };
        changes.push(attribute(ETHTOOL_A_LINKMODES_DUPLEX, duplex)?);
    }
    Ok(changes)
}

/// Returns speed and duplex mode of a mode such as `1000baseT/Full`; none if it is no speed.
pub(crate) fn mode(name: &str) -> Option<LinkMode> {
    let (kind, duplex) = name.rsplit_once('/')?;
    let duplex = match duplex {
        "Half" => Duplex::Half,
        "Full" => Duplex::Full,
        _ => return None,
    };
    let (speed, _) = kind.split_once("base")?;
    Some(LinkMode { speed_mbit: speed.parse().ok()?, duplex })
}
