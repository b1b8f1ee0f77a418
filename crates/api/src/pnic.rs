//! Settings of physical network cards, their *pNICs* (row VN-6; ESX: `esxcli network nic set`,
//! `ring`, `coalesce`, `queue`, `tso` and `cso`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::link::Link;
use crate::word::on_off;
use crate::{MacAddr, Name};

/// Settings of a network card that differ from those that it has without taut. The name of the
/// document is that of the card's interface. An absent setting is left, or given back, as it was
/// before.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PnicSettings {
    /// Speed of the link in Mbit/s (ESX: `--speed`). With autonegotiation it is the only speed that
    /// the card offers to its peer.
    pub speed_mbit: Option<u32>,
    /// Duplex mode of the link (ESX: `--duplex`).
    pub duplex: Option<Duplex>,
    /// Negotiation of speed and duplex mode with the peer (ESX: `--auto`).
    pub autoneg: Option<bool>,
    /// Sizes of rings.
    #[serde(skip_serializing_if = "is_default")]
    pub rings: RingSettings,
    /// Numbers of channels.
    #[serde(skip_serializing_if = "is_default")]
    pub channels: ChannelSettings,
    /// Interrupt moderation.
    #[serde(skip_serializing_if = "is_default")]
    pub coalescing: CoalescingSettings,
    /// Number of virtual functions (SR-IOV): PCI devices of the card that can be passed through to
    /// VMs. From 0 to the card's maximum. (ESX: the parameter `max_vfs` of the driver's module.)
    pub vfs: Option<u32>,
    /// Offloads, on or off.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub offloads: BTreeMap<Offload, bool>,
}

/// Sizes of the rings of each channel, in descriptors from 1 to the card's maximum (ESX: `esxcli
/// network nic ring current set`).
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RingSettings {
    /// Receive ring.
    pub rx: Option<u32>,
    /// Transmit ring.
    pub tx: Option<u32>,
}

/// Numbers of channels, from 1 to the card's maximum. A channel is an interrupt with its queues.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelSettings {
    /// Channels with a receive and a transmit queue. Most cards have only these.
    pub combined: Option<u32>,
    /// Channels with a receive queue alone.
    pub rx: Option<u32>,
    /// Channels with a transmit queue alone.
    pub tx: Option<u32>,
}

/// Interrupt moderation of a card (ESX: `esxcli network nic coalesce set`).
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CoalescingSettings {
    /// Microseconds that the interrupt of a received frame may wait; 0 for none.
    pub rx_us: Option<u32>,
    /// Received frames after which the interrupt comes at once.
    pub rx_frames: Option<u32>,
    /// Microseconds that the interrupt after a sent frame may wait; 0 for none.
    pub tx_us: Option<u32>,
    /// Sent frames after which the interrupt comes at once.
    pub tx_frames: Option<u32>,
    /// Adaptation of the receive side's moderation to the load, by the driver.
    pub adaptive_rx: Option<bool>,
    /// The same for the transmit side.
    pub adaptive_tx: Option<bool>,
}

/// Duplex mode of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Duplex {
    /// One end sends at a time.
    Half,
    /// Both ends send at the same time.
    Full,
}

impl Duplex {
    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Half => "half",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Duplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Duplex {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = [Self::Half, Self::Full].into_iter().find(|duplex| duplex.as_str() == text);
        found.ok_or("write half or full")
    }
}

/// An offload of a card: work of the network stack that the card does, or that the kernel does for
/// several frames at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Segmentation of TCP by the card (ESX: `esxcli network nic tso set`).
    Tso,
    /// Segmentation by the kernel, at the last moment.
    Gso,
    /// Merging of received segments by the kernel.
    Gro,
    /// Merging of received segments by the card.
    Lro,
    /// Checking of the checksums of received frames.
    RxChecksum,
    /// Checksums of sent frames (ESX: `esxcli network nic cso set`).
    TxChecksum,
    /// Removal of the VLAN tags of received frames.
    #[serde(rename = "rxvlan")]
    RxVlan,
    /// Insertion of the VLAN tags of sent frames.
    #[serde(rename = "txvlan")]
    TxVlan,
}

impl Offload {
    /// All offloads.
    pub const ALL: [Self; 8] = [
        Self::Tso,
        Self::Gso,
        Self::Gro,
        Self::Lro,
        Self::RxChecksum,
        Self::TxChecksum,
        Self::RxVlan,
        Self::TxVlan,
    ];

    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tso => "tso",
            Self::Gso => "gso",
            Self::Gro => "gro",
            Self::Lro => "lro",
            Self::RxChecksum => "rx-checksum",
            Self::TxChecksum => "tx-checksum",
            Self::RxVlan => "rxvlan",
            Self::TxVlan => "txvlan",
        }
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Offload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|offload| offload.as_str() == text);
        found.ok_or_else(|| {
            format!("`{text}` is not an offload: write {}", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

/// A setting of a card that is a number, or a switch with the values 0 and 1. It has the name of
/// its option of `taut pnic set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PnicParameter {
    /// [`ChannelSettings::combined`].
    Channels,
    /// [`ChannelSettings::rx`].
    RxChannels,
    /// [`ChannelSettings::tx`].
    TxChannels,
    /// [`RingSettings::rx`].
    RxRing,
    /// [`RingSettings::tx`].
    TxRing,
    /// [`CoalescingSettings::rx_us`].
    RxUsecs,
    /// [`CoalescingSettings::rx_frames`].
    RxFrames,
    /// [`CoalescingSettings::tx_us`].
    TxUsecs,
    /// [`CoalescingSettings::tx_frames`].
    TxFrames,
    /// [`CoalescingSettings::adaptive_rx`].
    AdaptiveRx,
    /// [`CoalescingSettings::adaptive_tx`].
    AdaptiveTx,
    /// [`PnicSettings::vfs`].
    Vfs,
}

/// Parameters that the kernel reads and sets together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterGroup {
    /// Number of virtual functions.
    VirtualFunctions,
    /// Numbers of channels.
    Channels,
    /// Sizes of rings.
    Rings,
    /// Interrupt moderation.
    Coalescing,
}

impl ParameterGroup {
    /// All groups, in the order in which they are set: some drivers lose the number of channels
    /// when that of virtual functions changes, and the settings of rings and moderation when that
    /// of channels does.
    pub const ALL: [Self; 4] = [Self::VirtualFunctions, Self::Channels, Self::Rings, Self::Coalescing];
}

impl PnicParameter {
    /// All parameters.
    pub const ALL: [Self; 12] = [
        Self::Channels,
        Self::RxChannels,
        Self::TxChannels,
        Self::RxRing,
        Self::TxRing,
        Self::RxUsecs,
        Self::RxFrames,
        Self::TxUsecs,
        Self::TxFrames,
        Self::AdaptiveRx,
        Self::AdaptiveTx,
        Self::Vfs,
    ];

    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Channels => "channels",
            Self::RxChannels => "rx-channels",
            Self::TxChannels => "tx-channels",
            Self::RxRing => "rx-ring",
            Self::TxRing => "tx-ring",
            Self::RxUsecs => "rx-usecs",
            Self::RxFrames => "rx-frames",
            Self::TxUsecs => "tx-usecs",
            Self::TxFrames => "tx-frames",
            Self::AdaptiveRx => "adaptive-rx",
            Self::AdaptiveTx => "adaptive-tx",
            Self::Vfs => "vfs",
        }
    }

    /// Returns the group that it belongs to.
    pub const fn group(self) -> ParameterGroup {
        match self {
            Self::Channels | Self::RxChannels | Self::TxChannels => ParameterGroup::Channels,
            Self::RxRing | Self::TxRing => ParameterGroup::Rings,
            Self::Vfs => ParameterGroup::VirtualFunctions,
            _ => ParameterGroup::Coalescing,
        }
    }

    /// Returns the switch with which the driver changes this parameter by itself.
    pub const fn adapted_by(self) -> Option<Self> {
        match self {
            Self::RxUsecs | Self::RxFrames => Some(Self::AdaptiveRx),
            Self::TxUsecs | Self::TxFrames => Some(Self::AdaptiveTx),
            _ => None,
        }
    }

    /// Returns whether it is a switch with the values 0 and 1.
    pub const fn is_switch(self) -> bool {
        matches!(self, Self::AdaptiveRx | Self::AdaptiveTx)
    }

    /// Returns a value of it as users read it.
    pub fn text(self, value: u32) -> String {
        if self.is_switch() { on_off(value != 0).to_owned() } else { value.to_string() }
    }
}

impl fmt::Display for PnicParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PnicSettings {
    /// Returns whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether speed, duplex mode or autonegotiation is set.
    pub fn has_link(&self) -> bool {
        self.speed_mbit.is_some() || self.duplex.is_some() || self.autoneg.is_some()
    }

    /// Returns the value of a parameter, if it is set.
    pub fn parameter(&self, parameter: PnicParameter) -> Option<u32> {
        let Self { rings, channels, coalescing, .. } = self;
        match parameter {
            PnicParameter::Channels => channels.combined,
            PnicParameter::RxChannels => channels.rx,
            PnicParameter::TxChannels => channels.tx,
            PnicParameter::RxRing => rings.rx,
            PnicParameter::TxRing => rings.tx,
            PnicParameter::RxUsecs => coalescing.rx_us,
            PnicParameter::RxFrames => coalescing.rx_frames,
            PnicParameter::TxUsecs => coalescing.tx_us,
            PnicParameter::TxFrames => coalescing.tx_frames,
            PnicParameter::AdaptiveRx => coalescing.adaptive_rx.map(u32::from),
            PnicParameter::AdaptiveTx => coalescing.adaptive_tx.map(u32::from),
            PnicParameter::Vfs => self.vfs,
        }
    }

    /// Sets a parameter, or (`None`) leaves it as it was without taut.
    pub fn set_parameter(&mut self, parameter: PnicParameter, value: Option<u32>) {
        let Self { rings, channels, coalescing, .. } = self;
        match parameter {
            PnicParameter::Channels => channels.combined = value,
            PnicParameter::RxChannels => channels.rx = value,
            PnicParameter::TxChannels => channels.tx = value,
            PnicParameter::RxRing => rings.rx = value,
            PnicParameter::TxRing => rings.tx = value,
            PnicParameter::RxUsecs => coalescing.rx_us = value,
            PnicParameter::RxFrames => coalescing.rx_frames = value,
            PnicParameter::TxUsecs => coalescing.tx_us = value,
            PnicParameter::TxFrames => coalescing.tx_frames = value,
            PnicParameter::AdaptiveRx => coalescing.adaptive_rx = value.map(|value| value != 0),
            PnicParameter::AdaptiveTx => coalescing.adaptive_tx = value.map(|value| value != 0),
            PnicParameter::Vfs => self.vfs = value,
        }
    }

    /// Returns the parameters that are set, with their values.
    pub fn parameters(&self) -> BTreeMap<PnicParameter, u32> {
        let set = |parameter: PnicParameter| Some((parameter, self.parameter(parameter)?));
        PnicParameter::ALL.into_iter().filter_map(set).collect()
    }

    /// Replaces each setting by that of `other`, where that has one.
    pub fn override_by(&mut self, other: &Self) {
        self.speed_mbit = other.speed_mbit.or(self.speed_mbit);
        self.duplex = other.duplex.or(self.duplex);
        self.autoneg = other.autoneg.or(self.autoneg);
        for (parameter, value) in other.parameters() {
            self.set_parameter(parameter, Some(value));
        }
        self.offloads.extend(&other.offloads);
    }
}

impl fmt::Display for PnicSettings {
    /// Lists the settings by the names of their options; `none` if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let speed = self.speed_mbit.map(|speed| format!("speed {speed}"));
        let duplex = self.duplex.map(|duplex| format!("duplex {duplex}"));
        let autoneg = self.autoneg.map(|on| format!("autoneg {}", on_off(on)));
        let parameters = self.parameters().into_iter();
        let parameters =
            parameters.map(|(parameter, value)| format!("{parameter} {}", parameter.text(value)));
        let offloads = self.offloads.iter().map(|(offload, on)| format!("{offload} {}", on_off(*on)));
        let all: Vec<_> =
            [speed, duplex, autoneg].into_iter().flatten().chain(parameters).chain(offloads).collect();
        f.write_str(if all.is_empty() { "none" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// State of a network card and of its settings.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PnicStatus {
    /// The card as it is now; absent if the host has no interface of this name.
    pub card: Option<PnicFacts>,
    /// vSwitch that the card is an uplink of.
    pub vswitch: Option<Name>,
    /// True if every setting of the document is in force.
    pub in_force: bool,
    /// Settings that are not in force, or could not be given back, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A network card as the kernel and its driver describe it (ESX: `esxcli network nic get`).
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PnicFacts {
    /// Driver, or kind of interface if it is a virtual one.
    pub driver: Option<String>,
    /// Ethernet address; absent for an interface that is no Ethernet interface.
    pub mac: Option<MacAddr>,
    /// Bytes of the longest packet that the interface sends, without the Ethernet header.
    pub mtu: u32,
    /// State of the link.
    pub link: Link,
    /// Speed in Mbit/s; absent without a link, and for interfaces that state none.
    pub speed_mbit: Option<u32>,
    /// Duplex mode; absent in the same cases.
    pub duplex: Option<Duplex>,
    /// True if speed and duplex mode are negotiated; absent if the driver has no such settings.
    pub autoneg: Option<bool>,
    /// Speeds in Mbit/s and duplex modes that the card supports; empty if its driver lists none.
    #[serde(default)]
    pub modes: Vec<LinkMode>,
    /// Parameters that the card has.
    #[serde(default)]
    pub parameters: BTreeMap<PnicParameter, ParameterFacts>,
    /// PCI addresses of its virtual functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_functions: Vec<String>,
    /// Offloads that the kernel knows.
    #[serde(default)]
    pub offloads: BTreeMap<Offload, OffloadFacts>,
    /// Counters of the interface since its driver was loaded, under the kernel's names
    /// (`/sys/class/net/*/statistics`).
    #[serde(default)]
    pub statistics: BTreeMap<String, u64>,
}

/// A speed with a duplex mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct LinkMode {
    /// Speed in Mbit/s.
    pub speed_mbit: u32,
    /// Duplex mode.
    pub duplex: Duplex,
}

/// A parameter of a card.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParameterFacts {
    /// Present value.
    pub value: u32,
    /// Largest value, for rings and channels.
    pub max: Option<u32>,
}

/// An offload of a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OffloadFacts {
    /// True if it is in use.
    pub on: bool,
    /// True if it cannot be changed.
    pub fixed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: serde_json::Value) -> PnicSettings {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn settings_are_written_as_they_are_read_and_nothing_else_is() {
        let json = serde_json::json!({
            "speed_mbit": 1000, "duplex": "full", "autoneg": false,
            "rings": { "rx": 512 }, "channels": { "combined": 4 },
            "coalescing": { "rx_us": 0, "adaptive_rx": false }, "vfs": 2,
            "offloads": { "rxvlan": true, "tso": false },
        });
        let all = settings(json.clone());
        assert_eq!(serde_json::to_value(&all).unwrap(), json);
        assert_eq!(
            all.to_string(),
            "speed 1000, duplex full, autoneg off, channels 4, rx-ring 512, rx-usecs 0, adaptive-rx off, vfs \
             2, tso off, rxvlan on"
        );
        assert_eq!(serde_json::to_value(PnicSettings::default()).unwrap(), serde_json::json!({}));
        assert_eq!(PnicSettings::default().to_string(), "none");
        for wrong in [r#"{"speed":1000}"#, r#"{"rings":{"rx":-1}}"#, r#"{"offloads":{"x":true}}"#] {
            assert!(serde_json::from_str::<PnicSettings>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_are_the_same_everywhere() {
        for parameter in PnicParameter::ALL {
            assert_eq!(serde_json::to_value(parameter).unwrap(), parameter.as_str());
            let mut one = PnicSettings::default();
            one.set_parameter(parameter, Some(1));
            assert_eq!(one.parameters(), [(parameter, 1)].into());
            assert_eq!(one.to_string(), format!("{parameter} {}", parameter.text(1)));
            one.set_parameter(parameter, None);
            assert!(one.is_empty());
        }
        for offload in Offload::ALL {
            assert_eq!(serde_json::to_value(offload).unwrap(), offload.as_str());
            assert_eq!(offload.as_str().parse(), Ok(offload));
        }
        assert!("ufo".parse::<Offload>().unwrap_err().ends_with("rxvlan, txvlan"));
        assert_eq!(("half".parse(), "fast".parse::<Duplex>()), (Ok(Duplex::Half), Err("write half or full")));
    }

    #[test]
    fn a_later_setting_replaces_an_earlier_one_and_leaves_the_others() {
        let mut below = settings(serde_json::json!({
            "speed_mbit": 100, "coalescing": { "rx_us": 0, "tx_us": 8 }, "offloads": { "tso": false, "gro": true }
        }));
        below.override_by(&settings(serde_json::json!({
            "autoneg": true, "coalescing": { "rx_us": 50 }, "offloads": { "tso": true }
        })));
        assert_eq!(below.to_string(), "speed 100, autoneg on, rx-usecs 50, tx-usecs 8, tso on, gro on");
        assert!(below.has_link() && !settings(serde_json::json!({ "rings": { "rx": 8 } })).has_link());
    }
}
