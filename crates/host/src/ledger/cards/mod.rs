//! Settings of network cards: recorded before they are changed, claimed by holders, and given back.
//!
//! As with files, the ledger has the values from before the first change and each holder's wish. A
//! card is known by the number of its interface, which the kernel counts up, so that a later
//! interface has another one. A renamed interface keeps its record. The record of one that is gone
//! from the network namespace is dropped.

mod attempts;
mod enforce;
mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

use taut_api::pnic::{Offload, ParameterGroup, PnicParameter, PnicSettings};
use taut_api::word::on_off;

use super::book::LockedFile;
use super::record::CardRecord;
use super::{Book, Holder, Ledger, LedgerError};
use crate::kernel::cards::{Cards, Parameters, Presence};
use crate::kernel::netlink::ethtool::features::{self, Feature};
use crate::kernel::netlink::ethtool::link::LinkSettings;
use enforce::{enforce, is_adapted};
use link::without_negotiated;

pub(crate) use attempts::Attempts;

/// A setting, or settings that can only be changed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CardKey {
    /// Speed, duplex mode and autonegotiation.
    Link,
    /// A number or switch.
    Parameter(PnicParameter),
    /// An offload.
    Offload(Offload),
}

impl CardKey {
    /// Returns the settings that a claim has.
    pub(crate) fn of(claim: &PnicSettings) -> BTreeSet<Self> {
        let link = claim.has_link().then_some(Self::Link);
        let parameters = claim.parameters().into_keys().map(Self::Parameter);
        let offloads = claim.offloads.keys().copied().map(Self::Offload);
        link.into_iter().chain(parameters).chain(offloads).collect()
    }
}

impl fmt::Display for CardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link => f.pad("link"),
            Self::Parameter(parameter) => parameter.fmt(f),
            Self::Offload(offload) => offload.fmt(f),
        }
    }
}

/// A value before and after a change, as users read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Value before.
    pub(crate) from: String,
    /// Value now.
    pub(crate) to: String,
}

/// Settings of a card as they were found. It has only those that the ledger has a record of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CardState {
    link: Option<LinkSettings>,
    parameters: BTreeMap<PnicParameter, u32>,
    features: BTreeMap<String, Feature>,
}

/// The outcome for one card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SettledCard {
    /// Number of the interface; none if there is none of this name.
    pub(crate) index: Option<u32>,
    /// Settings that have the value of the last claim.
    pub(crate) in_force: BTreeMap<CardKey, Step>,
    /// Settings that have their former value.
    pub(crate) given_back: BTreeMap<CardKey, Step>,
    /// Settings that the holder claims, but a later one determines.
    pub(crate) held: BTreeSet<CardKey>,
    /// Settings that do not have their value, and why.
    pub(crate) problems: BTreeMap<CardKey, String>,
    /// Something could not be read or set, and is to be tried again.
    pub(crate) has_errors: bool,
    /// The interface afterwards, as the kernel knows it without the driver.
    pub(crate) presence: Option<Presence>,
    /// The settings afterwards.
    pub(crate) state: CardState,
}

/// Outcomes by the names of the interfaces.
pub(crate) type SettledCards = BTreeMap<String, SettledCard>;

impl Ledger {
    /// Replaces all claims of `holder` on cards by `wanted`, and changes the cards accordingly. The
    /// outcome has every card of the ledger and of `wanted`.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read or written. Every change made until then is in
    /// it.
    pub(crate) fn settle_cards(
        &self,
        holder: Holder,
        wanted: &BTreeMap<String, PnicSettings>,
        cards: &mut dyn Cards,
    ) -> Result<SettledCards, LedgerError> {
        self.settle_cards_again(holder, wanted, cards, &mut Attempts::new(Instant::now()))
    }

    /// Does the same for a holder who comes again and again. `attempts` has what it sent before, so
    /// that no value is sent too often.
    ///
    /// # Errors
    /// Returns the same errors as [`Ledger::settle_cards`].
    pub(crate) fn settle_cards_again(
        &self,
        holder: Holder,
        wanted: &BTreeMap<String, PnicSettings>,
        cards: &mut dyn Cards,
        attempts: &mut Attempts,
    ) -> Result<SettledCards, LedgerError> {
        self.change_cards(holder, cards, attempts, |records, cards| {
            for record in records.iter_mut().filter(|record| !wanted.contains_key(&record.name)) {
                record.claims.remove(&holder);
            }
            claim(records, holder, wanted, cards, |_, new| new.clone())
        })
    }

    /// Adds claims on cards to those that `holder` has. A claim that the kernel refuses is given
    /// up.
    ///
    /// # Errors
    /// Returns the same errors as [`Ledger::settle_cards`].
    pub(crate) fn add_cards(
        &self,
        holder: Holder,
        wanted: &BTreeMap<String, PnicSettings>,
        cards: &mut dyn Cards,
    ) -> Result<SettledCards, LedgerError> {
        let attempts = &mut Attempts::new(Instant::now());
        self.change_cards(holder, cards, attempts, |records, cards| {
            claim(records, holder, wanted, cards, |before, new| {
                let mut both = before.clone();
                both.override_by(new);
                both
            })
        })
    }

    /// Returns the settings of cards that a holder claims.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub(crate) fn claimed_cards(
        &self,
        holder: Holder,
    ) -> Result<BTreeMap<String, PnicSettings>, LedgerError> {
        let claims = self.book()?.cards.into_iter().filter_map(|mut card| {
            let claim = card.claims.remove(&holder)?;
            Some((card.name, claim))
        });
        Ok(claims.collect())
    }

    /// Returns whether a holder claims cards, or any card is still to be given back.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub(crate) fn has_cards(&self, holder: Holder) -> Result<bool, LedgerError> {
        let book = self.book()?;
        Ok(book.cards.iter().any(|card| card.claims.is_empty() || card.claims.contains_key(&holder)))
    }

    /// Enters claims into the book, records it, changes the cards, and records the outcome.
    fn change_cards(
        &self,
        holder: Holder,
        cards: &mut dyn Cards,
        attempts: &mut Attempts,
        enter: impl FnOnce(&mut Vec<CardRecord>, &mut dyn Cards) -> SettledCards,
    ) -> Result<SettledCards, LedgerError> {
        let file = LockedFile::open(&self.folder)?;
        let mut book = file.read(&self.root)?;
        follow(&mut book.cards, cards);
        attempts.retain(|index| book.cards.iter().any(|record| record.index == index));
        let mut settled = enter(&mut book.cards, cards);
        for record in &mut book.cards {
            let outcome = settled.entry(record.name.clone()).or_default();
            outcome.index = Some(record.index);
            let wanted = record.wanted();
            note_before(record, &wanted, cards, outcome);
        }
        self.write_if_changed(&file, &book)?;
        for record in &mut book.cards {
            let outcome = settled.entry(record.name.clone()).or_default();
            enforce(record, cards, attempts, outcome);
            outcome.held = record.held(holder);
            // A refused claim of a user at the command line is not tried again. What a later holder
            // determines says nothing about it.
            let refused = outcome.problems.keys().filter(|key| !outcome.held.contains(*key));
            if holder == Holder::Check && record.give_up(holder, refused) {
                let mut again = SettledCard::default();
                enforce(record, cards, attempts, &mut again);
                outcome.state = again.state;
            }
            outcome.presence = cards.presence(&record.name).ok().flatten();
        }
        book.cards.retain(|record| !record.is_settled());
        self.write_if_changed(&file, &book)?;
        Ok(settled)
    }

    fn write_if_changed(&self, file: &LockedFile, book: &Book) -> Result<(), LedgerError> {
        if *book == file.read(&self.root)? { Ok(()) } else { file.write(book) }
    }
}

impl CardRecord {
    /// Returns what all holders want together.
    fn wanted(&self) -> PnicSettings {
        let mut wanted = PnicSettings::default();
        for claim in self.claims.values() {
            wanted.override_by(claim);
        }
        wanted
    }

    /// Returns the settings that `holder` claims, but a later holder determines.
    fn held(&self, holder: Holder) -> BTreeSet<CardKey> {
        let Some(own) = self.claims.get(&holder) else { return BTreeSet::new() };
        let later = self.claims.range(holder..).skip(1);
        let later: BTreeSet<_> = later.flat_map(|(_, claim)| CardKey::of(claim)).collect();
        &CardKey::of(own) & &later
    }

    /// Takes settings out of a holder's claim. Returns whether that had any of them.
    fn give_up<'a>(&mut self, holder: Holder, keys: impl Iterator<Item = &'a CardKey>) -> bool {
        let Some(claim) = self.claims.get_mut(&holder) else { return false };
        let before = claim.clone();
        for key in keys {
            match key {
                CardKey::Link => {
                    (claim.speed_mbit, claim.duplex, claim.autoneg) = (None, None, None);
                }
                CardKey::Parameter(parameter) => claim.set_parameter(*parameter, None),
                CardKey::Offload(offload) => {
                    claim.offloads.remove(offload);
                }
            }
        }
        let has_changed = *claim != before;
        if claim.is_empty() {
            self.claims.remove(&holder);
        }
        has_changed
    }

    /// Returns whether nobody claims anything, and everything is as before.
    fn is_settled(&self) -> bool {
        let Self { name: _, index: _, claims, link, parameters, features } = self;
        claims.is_empty() && link.is_none() && parameters.is_empty() && features.is_empty()
    }
}

impl CardState {
    /// Reads the same settings again.
    pub(crate) fn read_again(&self, index: u32, cards: &mut dyn Cards) -> std::io::Result<Self> {
        let mut state = Self::default();
        if self.link.is_some() {
            state.link = cards.link(index)?.map(without_negotiated);
        }
        for group in ParameterGroup::ALL {
            if self.parameters.keys().any(|parameter| parameter.group() == group) {
                let found = cards.parameters(index, group)?;
                state.note_parameters(&found, |parameter| self.parameters.contains_key(parameter));
            }
        }
        if !self.features.is_empty() {
            let found = cards.features(index)?.into_iter();
            state.features = found.filter(|(feature, _)| self.features.contains_key(feature)).collect();
        }
        Ok(state)
    }

    /// Notes parameters that do not change by themselves.
    fn note_parameters(&mut self, found: &Parameters, is_of_interest: impl Fn(&PnicParameter) -> bool) {
        let lasting = found
            .iter()
            .filter(|(parameter, _)| is_of_interest(parameter) && !is_adapted(**parameter, found));
        self.parameters.extend(lasting.map(|(parameter, facts)| (*parameter, facts.value)));
    }
}

/// Drops the records of interfaces that are gone, and follows those that were renamed.
fn follow(records: &mut Vec<CardRecord>, cards: &mut dyn Cards) {
    records.retain_mut(|record| match cards.name(record.index) {
        Ok(Some(name)) => {
            record.name = name;
            true
        }
        Ok(None) => false,
        // An error is no evidence.
        Err(_) => true,
    });
}

/// Enters the claims of a holder, and returns outcomes for cards that are not there.
fn claim(
    records: &mut Vec<CardRecord>,
    holder: Holder,
    wanted: &BTreeMap<String, PnicSettings>,
    cards: &mut dyn Cards,
    merge: impl Fn(&PnicSettings, &PnicSettings) -> PnicSettings,
) -> SettledCards {
    let mut absent = SettledCards::new();
    for (name, settings) in wanted {
        let index = match cards.presence(name) {
            Ok(Some(presence)) => presence.index,
            Ok(None) => {
                absent.insert(name.clone(), SettledCard::default());
                continue;
            }
            Err(error) => {
                let mut card = SettledCard::default();
                card.fail(CardKey::of(settings), &format!("the card cannot be found: {error}"));
                absent.insert(name.clone(), card);
                continue;
            }
        };
        let known = records.iter().position(|record| record.index == index);
        let at = known.unwrap_or_else(|| {
            records.push(CardRecord::new(name.clone(), index));
            records.len() - 1
        });
        let claims = &mut records[at].claims;
        let merged = merge(claims.get(&holder).unwrap_or(&PnicSettings::default()), settings);
        if merged.is_empty() {
            claims.remove(&holder);
        } else {
            claims.insert(holder, merged);
        }
    }
    absent
}

/// Records the present values of settings that are about to be changed for the first time.
fn note_before(
    record: &mut CardRecord,
    wanted: &PnicSettings,
    cards: &mut dyn Cards,
    outcome: &mut SettledCard,
) {
    const LACKS: &str = "the card has no such setting";
    if wanted.has_link() && record.link.is_none() {
        match cards.link(record.index) {
            // The former speed could not be given back.
            Ok(Some(link)) if !link.autoneg && link.speed_mbit.is_none() => {
                outcome.fail([CardKey::Link], "no link: the former speed is unknown");
            }
            Ok(Some(link)) => record.link = Some(link),
            Ok(None) => drop(outcome.problems.insert(CardKey::Link, LACKS.to_owned())),
            Err(error) => outcome.fail([CardKey::Link], &unreadable(&error)),
        }
    }
    for group in ParameterGroup::ALL {
        let is_new = |key: &PnicParameter| key.group() == group && !record.parameters.contains_key(key);
        let new: Vec<_> = wanted.parameters().into_keys().filter(is_new).collect();
        if new.is_empty() {
            continue;
        }
        let found = match cards.parameters(record.index, group) {
            Ok(found) => found,
            Err(error) => {
                outcome.fail(new.into_iter().map(CardKey::Parameter), &unreadable(&error));
                continue;
            }
        };
        for parameter in new {
            if let Some(facts) = found.get(&parameter) {
                record.parameters.insert(parameter, facts.value);
            } else {
                outcome.problems.insert(CardKey::Parameter(parameter), LACKS.to_owned());
            }
        }
    }
    let is_known = |offload: Offload| {
        features::of_offload(offload).iter().any(|name| record.features.contains_key(*name))
    };
    let new: Vec<_> = wanted
        .offloads
        .iter()
        .map(|(offload, on)| (*offload, *on))
        .filter(|(key, _)| !is_known(*key))
        .collect();
    if new.is_empty() {
        return;
    }
    let found = match cards.features(record.index) {
        Ok(found) => found,
        Err(error) => {
            let keys = new.into_iter().map(|(offload, _)| CardKey::Offload(offload));
            return outcome.fail(keys, &unreadable(&error));
        }
    };
    for (offload, on) in new {
        let parts = features::of_offload(offload).iter();
        let parts = parts.filter_map(|name| Some((name, found.get(*name)?)));
        let changeable = parts.filter(|(_, feature)| feature.is_changeable);
        record.features.extend(changeable.map(|(name, feature)| ((*name).to_owned(), feature.is_wanted)));
        let problem = match features::offload(&found, offload) {
            Some(facts) if facts.fixed && facts.on != on => format!("it is fixed {}", on_off(facts.on)),
            Some(_) => continue,
            None => LACKS.to_owned(),
        };
        outcome.problems.insert(CardKey::Offload(offload), problem);
    }
}

/// Describes a failed attempt to read a setting.
fn unreadable(error: &std::io::Error) -> String {
    format!("cannot be read: {error}")
}

impl SettledCard {
    /// Notes a setting that has its value.
    fn note(&mut self, key: CardKey, is_claimed: bool, from: String, to: String) {
        let list = if is_claimed { &mut self.in_force } else { &mut self.given_back };
        list.insert(key, Step { from, to });
    }

    /// Notes settings that cannot be changed for the same reason.
    fn fail(&mut self, keys: impl IntoIterator<Item = CardKey>, why: &str) {
        self.has_errors = true;
        self.problems.extend(keys.into_iter().map(|key| (key, why.to_owned())));
    }
}

#[cfg(test)]
mod tests;
