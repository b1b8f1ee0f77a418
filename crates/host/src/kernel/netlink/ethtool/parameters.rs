//! Settings of network cards that are numbers: channels, rings, interrupt moderation.

use std::collections::BTreeMap;
use std::io;

use taut_api::pnic::{ParameterFacts, ParameterGroup, PnicParameter};

use super::{Attribute, Attributes, Ethtool, attribute};

/// Parameters of a card, with their largest values.
pub(crate) type Parameters = BTreeMap<PnicParameter, ParameterFacts>;

const ETHTOOL_MSG_RINGS_GET: u8 = 15;
const ETHTOOL_MSG_RINGS_SET: u8 = 16;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_MSG_CHANNELS_SET: u8 = 18;
const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
const ETHTOOL_MSG_COALESCE_SET: u8 = 20;
const ETHTOOL_A_RINGS_RX_MAX: u16 = 2;
const ETHTOOL_A_RINGS_TX_MAX: u16 = 5;
const ETHTOOL_A_RINGS_RX: u16 = 6;
const ETHTOOL_A_RINGS_TX: u16 = 9;
const ETHTOOL_A_CHANNELS_RX_MAX: u16 = 2;
const ETHTOOL_A_CHANNELS_TX_MAX: u16 = 3;
const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;
const ETHTOOL_A_COALESCE_RX_USECS: u16 = 2;
const ETHTOOL_A_COALESCE_RX_MAX_FRAMES: u16 = 3;
const ETHTOOL_A_COALESCE_TX_USECS: u16 = 6;
const ETHTOOL_A_COALESCE_TX_MAX_FRAMES: u16 = 7;
const ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX: u16 = 11;
const ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX: u16 = 12;

/// Commands that read and change a group of parameters; none for a group that the family does not
/// have.
const fn commands(group: ParameterGroup) -> Option<(u8, u8)> {
    match group {
        ParameterGroup::VirtualFunctions => None,
        ParameterGroup::Channels => Some((ETHTOOL_MSG_CHANNELS_GET, ETHTOOL_MSG_CHANNELS_SET)),
        ParameterGroup::Rings => Some((ETHTOOL_MSG_RINGS_GET, ETHTOOL_MSG_RINGS_SET)),
        ParameterGroup::Coalescing => Some((ETHTOOL_MSG_COALESCE_GET, ETHTOOL_MSG_COALESCE_SET)),
    }
}

/// Attributes of a parameter: its value, and its largest value; none for a parameter that the
/// family does not have.
const fn attributes(parameter: PnicParameter) -> Option<(u16, Option<u16>)> {
    Some(match parameter {
        PnicParameter::Vfs => return None,
        PnicParameter::Channels => (ETHTOOL_A_CHANNELS_COMBINED_COUNT, Some(ETHTOOL_A_CHANNELS_COMBINED_MAX)),
        PnicParameter::RxChannels => (ETHTOOL_A_CHANNELS_RX_COUNT, Some(ETHTOOL_A_CHANNELS_RX_MAX)),
        PnicParameter::TxChannels => (ETHTOOL_A_CHANNELS_TX_COUNT, Some(ETHTOOL_A_CHANNELS_TX_MAX)),
        PnicParameter::RxRing => (ETHTOOL_A_RINGS_RX, Some(ETHTOOL_A_RINGS_RX_MAX)),
        PnicParameter::TxRing => (ETHTOOL_A_RINGS_TX, Some(ETHTOOL_A_RINGS_TX_MAX)),
        PnicParameter::RxUsecs => (ETHTOOL_A_COALESCE_RX_USECS, None),
        PnicParameter::RxFrames => (ETHTOOL_A_COALESCE_RX_MAX_FRAMES, None),
        PnicParameter::TxUsecs => (ETHTOOL_A_COALESCE_TX_USECS, None),
        PnicParameter::TxFrames => (ETHTOOL_A_COALESCE_TX_MAX_FRAMES, None),
        PnicParameter::AdaptiveRx => (ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, None),
        PnicParameter::AdaptiveTx => (ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX, None),
    })
}

impl Ethtool {
    /// Reads those parameters of a group that a card has.
    pub(crate) fn parameters(&mut self, card: u32, group: ParameterGroup) -> io::Result<Parameters> {
        let Some((read_command, _)) = commands(group) else { return Ok(Parameters::new()) };
        let answer = self.ask(read_command, card)?;
        Ok(answer.map(|answer| read(group, &answer.attrs().get_attr_handle())).unwrap_or_default())
    }

    /// Changes parameters of a group, all or none.
    pub(crate) fn set_parameters(
        &mut self,
        card: u32,
        group: ParameterGroup,
        values: &BTreeMap<PnicParameter, u32>,
    ) -> io::Result<()> {
        let Some((_, write_command)) = commands(group) else { return Err(io::ErrorKind::Unsupported.into()) };
        let changes = values.iter().map(|(parameter, value)| write(*parameter, *value));
        let changes = changes.collect::<io::Result<_>>()?;
        self.change(write_command, card, changes)
    }
}

pub(super) fn read(group: ParameterGroup, answer: &Attributes<'_>) -> Parameters {
    let number = |parameter: PnicParameter, attribute: u16| {
        if parameter.is_switch() {
            answer.get_attr_payload_as::<u8>(attribute).ok().map(u32::from)
        } else {
            answer.get_attr_payload_as::<u32>(attribute).ok()
        }
    };
    let facts = |parameter: PnicParameter| {
        let (value, max) = attributes(parameter)?;
        let value = number(parameter, value)?;
        Some((parameter, ParameterFacts { value, max: max.and_then(|max| number(parameter, max)) }))
    };
    PnicParameter::ALL.into_iter().filter(|parameter| parameter.group() == group).filter_map(facts).collect()
}

pub(super) fn write(parameter: PnicParameter, value: u32) -> io::Result<Attribute> {
    let (kind, _) = attributes(parameter).ok_or(io::ErrorKind::Unsupported)?;
    if parameter.is_switch() { attribute(kind, u8::from(value != 0)) } else { attribute(kind, value) }
}
