//! Cards of tests, in the place of the kernel's.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use taut_api::pnic::{Duplex, ParameterFacts, ParameterGroup, PnicParameter};

use super::{Cards, Parameters, Presence};
use crate::kernel::netlink::ethtool::features::{Feature, Features};
use crate::kernel::netlink::ethtool::link::{LinkSettings, mode};

/// Cards by the names of their interfaces. Clones share them, as processes share a kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeCards(Arc<Mutex<Kernel>>);

#[derive(Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) cards: BTreeMap<String, FakeCard>,
    /// Number of changes so far.
    pub(crate) changes: u32,
    /// Number of changes at which the process is killed.
    pub(crate) dies_at: Option<u32>,
    /// Refuse every change.
    pub(crate) refuses: bool,
    /// Fail to read settings.
    pub(crate) is_unreadable: bool,
    /// Number of times that settings were read.
    pub(crate) reads: u32,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FakeCard {
    pub(crate) index: u32,
    pub(crate) has_carrier: bool,
    pub(crate) link: Option<LinkSettings>,
    pub(crate) parameters: Parameters,
    pub(crate) features: Features,
}

/// Modes of the card, and whether it offers them.
const MODES: [(&str, bool); 5] = [
    ("100baseT/Full", true),
    ("100baseT/Half", false),
    ("1000baseT/Full", true),
    ("Autoneg", true),
    ("Pause", true),
];

impl FakeCard {
    /// A card that negotiates 1000 Mbit/s, with rings of 256 and adaptive moderation. The sizes of
    /// its rings are multiples of 8. Its `tso` needs `tx-checksum`.
    pub(crate) fn new(index: u32) -> Self {
        let facts = |value, max| ParameterFacts { value, max };
        let feature = |is_changeable, is_on| Feature { is_changeable, is_wanted: is_on, is_active: is_on };
        let features = [
            ("tx-tcp-segmentation", feature(true, true)),
            ("tx-tcp6-segmentation", feature(true, false)),
            ("tx-checksum-ipv4", feature(true, true)),
            ("rx-gro", feature(true, true)),
            ("rx-lro", feature(false, false)),
        ];
        Self {
            index,
            has_carrier: true,
            link: Some(LinkSettings {
                autoneg: true,
                speed_mbit: Some(1000),
                duplex: Some(Duplex::Full),
                modes: MODES.into_iter().map(|(name, on)| (name.to_owned(), on)).collect(),
            }),
            parameters: [
                (PnicParameter::RxRing, facts(256, Some(4096))),
                (PnicParameter::TxRing, facts(256, Some(4096))),
                (PnicParameter::RxUsecs, facts(3, None)),
                (PnicParameter::AdaptiveRx, facts(1, None)),
            ]
            .into(),
            features: features.into_iter().map(|(name, feature)| (name.to_owned(), feature)).collect(),
        }
    }
}

impl FakeCards {
    /// Cards with these names. Their interfaces have the numbers from 7 on.
    pub(crate) fn plug(names: &[&str]) -> Self {
        let cards = Self::default();
        for (name, index) in names.iter().zip(7..) {
            cards.kernel().cards.insert((*name).to_owned(), FakeCard::new(index));
        }
        cards
    }

    /// Access to what the kernel has.
    pub(crate) fn kernel(&self) -> MutexGuard<'_, Kernel> {
        // A process that was killed holds no lock.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns a copy of a card.
    pub(crate) fn card(&self, name: &str) -> FakeCard {
        self.kernel().cards[name].clone()
    }

    /// Returns the value of a parameter.
    pub(crate) fn value(&self, name: &str, parameter: PnicParameter) -> u32 {
        self.kernel().cards[name].parameters[&parameter].value
    }

    fn read<T>(&self, index: u32, read: impl Fn(&FakeCard) -> T) -> io::Result<T> {
        let mut kernel = self.kernel();
        kernel.reads += 1;
        if kernel.is_unreadable {
            return Err(io::Error::other("the driver is being reset"));
        }
        let card = kernel.cards.values().find(|card| card.index == index);
        card.map(read).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&self, index: u32, change: impl FnOnce(&mut FakeCard) -> io::Result<()>) -> io::Result<()> {
        let mut kernel = self.kernel();
        assert!(kernel.dies_at != Some(kernel.changes), "killed");
        kernel.changes += 1;
        if kernel.refuses {
            return Err(io::Error::other("the firmware is busy"));
        }
        let card = kernel.cards.values_mut().find(|card| card.index == index);
        change(card.ok_or(io::ErrorKind::NotFound)?)
    }
}

impl Cards for FakeCards {
    fn presence(&mut self, name: &str) -> io::Result<Option<Presence>> {
        let presence =
            |card: &FakeCard| Presence { index: card.index, is_up: true, has_carrier: card.has_carrier };
        Ok(self.kernel().cards.get(name).map(presence))
    }

    fn name(&mut self, index: u32) -> io::Result<Option<String>> {
        let kernel = self.kernel();
        let found = kernel.cards.iter().find(|(_, card)| card.index == index);
        Ok(found.map(|(name, _)| name.clone()))
    }

    fn link(&mut self, index: u32) -> io::Result<Option<LinkSettings>> {
        self.read(index, |card| card.link.clone())
    }

    fn set_link(&mut self, index: u32, link: &LinkSettings) -> io::Result<()> {
        self.change(index, |card| {
            let now = card.link.as_mut().ok_or(io::ErrorKind::Unsupported)?;
            now.autoneg = link.autoneg;
            for (name, offer) in &link.modes {
                now.modes.insert(name.clone(), *offer);
            }
            let offered = now.modes.iter().filter(|(_, offer)| **offer).filter_map(|(name, _)| mode(name));
            let best = offered.max().filter(|_| link.autoneg);
            now.speed_mbit = best.map(|mode| mode.speed_mbit).or(link.speed_mbit);
            now.duplex = best.map(|mode| mode.duplex).or(link.duplex);
            Ok(())
        })
    }

    fn parameters(&mut self, index: u32, group: ParameterGroup) -> io::Result<Parameters> {
        let of_group = |card: &FakeCard| {
            let all = card.parameters.iter().filter(|(parameter, _)| parameter.group() == group);
            all.map(|(parameter, facts)| (*parameter, *facts)).collect()
        };
        self.read(index, of_group)
    }

    fn set_parameters(
        &mut self,
        index: u32,
        group: ParameterGroup,
        values: &BTreeMap<PnicParameter, u32>,
    ) -> io::Result<()> {
        self.change(index, |card| {
            for (parameter, value) in values {
                let facts = card.parameters.get_mut(parameter).ok_or(io::ErrorKind::Unsupported)?;
                if facts.max.is_some_and(|max| *value > max) {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let is_ring = group == ParameterGroup::Rings;
                facts.value = if is_ring { value.next_multiple_of(8) } else { *value };
            }
            Ok(())
        })
    }

    fn features(&mut self, index: u32) -> io::Result<Features> {
        self.read(index, |card| card.features.clone())
    }

    fn set_features(&mut self, index: u32, wanted: &BTreeMap<String, bool>) -> io::Result<()> {
        self.change(index, |card| {
            for (name, on) in wanted {
                let feature = card.features.get_mut(name).ok_or(io::ErrorKind::InvalidInput)?;
                if feature.is_changeable {
                    feature.is_wanted = *on;
                }
            }
            let has_checksum = card.features["tx-checksum-ipv4"].is_wanted;
            for (name, feature) in &mut card.features {
                feature.is_active = feature.is_wanted && (has_checksum || !name.starts_with("tx-tcp"));
            }
            Ok(())
        })
    }
}
