//! Gives the recorded settings of one card their values.

use std::collections::BTreeMap;

use taut_api::pnic::{Offload, ParameterGroup, PnicParameter, PnicSettings};
use taut_api::word::on_off;

use super::attempts::{Attempts, Outcome, Place, Target};
use super::link::{has_link, is_link, link_target, link_text, without_negotiated};
use super::{CardKey, SettledCard, unreadable};
use crate::kernel::cards::{Cards, Parameters};
use crate::kernel::netlink::ethtool::features::{self, Features};
use crate::kernel::netlink::ethtool::link::LinkSettings;
use crate::ledger::record::CardRecord;

/// Gives each recorded setting the value that the holders want, or its former one, and forgets
/// those that are as before and not claimed.
pub(super) fn enforce(
    record: &mut CardRecord,
    cards: &mut dyn Cards,
    attempts: &mut Attempts,
    outcome: &mut SettledCard,
) {
    let wanted = record.wanted();
    let mut card = Card { record, wanted, cards, attempts, outcome };
    for group in ParameterGroup::ALL {
        card.enforce_parameters(group);
    }
    card.enforce_features();
    card.enforce_link();
}

/// One card that is set.
struct Card<'a> {
    record: &'a mut CardRecord,
    wanted: PnicSettings,
    cards: &'a mut dyn Cards,
    attempts: &'a mut Attempts,
    outcome: &'a mut SettledCard,
}

impl Card<'_> {
    const fn place(&self, key: CardKey) -> Place {
        (self.record.index, key)
    }

    fn enforce_parameters(&mut self, group: ParameterGroup) {
        let recorded = self.record.parameters.iter().filter(|(parameter, _)| parameter.group() == group);
        let target: BTreeMap<PnicParameter, u32> = recorded
            .map(|(parameter, before)| (*parameter, self.wanted.parameter(*parameter).unwrap_or(*before)))
            .collect();
        if target.is_empty() {
            return;
        }
        let index = self.record.index;
        let was = match self.cards.parameters(index, group) {
            Ok(was) => was,
            Err(error) => {
                let keys = target.into_keys().map(CardKey::Parameter);
                return self.outcome.fail(keys, &unreadable(&error));
            }
        };
        let changes: BTreeMap<PnicParameter, u32> = target
            .iter()
            .filter(|(parameter, _)| self.sends_parameter(**parameter, &target, &was))
            .map(|(parameter, value)| (*parameter, *value))
            .collect();
        let (mut refused, mut read) = (None, Ok(was.clone()));
        if !changes.is_empty() {
            refused = self.cards.set_parameters(index, group, &changes).err().map(|error| error.to_string());
            read = self.cards.parameters(index, group);
        }
        for (&parameter, &value) in &changes {
            let found = read.as_ref().ok().and_then(|now| value_of(parameter, now));
            let wanted = Target::Parameter(value);
            let outcome = match &refused {
                Some(why) => Outcome::Refused(why.clone()),
                None if found.as_ref() == Some(&wanted) => Outcome::InForce,
                None => Outcome::Other,
            };
            self.attempts.note(self.place(CardKey::Parameter(parameter)), wanted, found, outcome);
        }
        let now = match read {
            Ok(now) => now,
            Err(error) => {
                let keys = target.into_keys().map(CardKey::Parameter);
                return self.outcome.fail(keys, &unreadable(&error));
            }
        };
        for (&parameter, &value) in &target {
            self.judge_parameter(parameter, value, &was, &now);
        }
        self.outcome.state.note_parameters(&now, |parameter| target.contains_key(parameter));
    }

    /// Returns whether a parameter is to be sent now.
    fn sends_parameter(
        &self,
        parameter: PnicParameter,
        target: &BTreeMap<PnicParameter, u32>,
        was: &Parameters,
    ) -> bool {
        let Some(value) = target.get(&parameter).map(|value| Target::Parameter(*value)) else { return false };
        let present = value_of(parameter, was);
        if present.as_ref() == Some(&value) {
            return false;
        }
        let place = self.place(CardKey::Parameter(parameter));
        match parameter.adapted_by().filter(|_| is_adapted(parameter, was)) {
            // The driver changes the value by itself until the switch is off.
            Some(switch) if target.get(&switch) == Some(&0) => self.sends_parameter(switch, target, was),
            Some(_) if self.attempts.get(place, &value).is_some() => false,
            _ => self.attempts.permits(place, &value, present.as_ref()),
        }
    }

    /// Notes whether a parameter has its value.
    fn judge_parameter(&mut self, parameter: PnicParameter, value: u32, was: &Parameters, now: &Parameters) {
        let key = CardKey::Parameter(parameter);
        let place = self.place(key);
        let target = Target::Parameter(value);
        let found = value_of(parameter, now);
        let is_claimed = self.wanted.parameter(parameter).is_some();
        let is_adapted = is_adapted(parameter, now);
        let text = |found: &Parameters| {
            found.get(&parameter).map_or_else(|| "unknown".to_owned(), |facts| parameter.text(facts.value))
        };
        let attempt = self.attempts.get(place, &target);
        let is_refused = attempt.is_some_and(|attempt| matches!(attempt.outcome, Outcome::Refused(_)));
        let has_value = found.as_ref() == Some(&target);
        if let Some(switch) = parameter.adapted_by().filter(|_| is_claimed && is_adapted && !is_refused) {
            let problem = format!("has no effect while {switch} is on, which must be turned off as well");
            self.outcome.problems.insert(key, problem);
        } else if has_value || (is_adapted && !is_refused) {
            self.outcome.note(key, is_claimed, text(was), text(now));
            if is_claimed {
                self.attempts.note_in_force(place, target);
            } else {
                self.attempts.forget(place);
                self.record.parameters.remove(&parameter);
            }
        } else {
            self.tell_unmet(key, &target, found.as_ref(), &parameter.text(value), &text(now));
        }
    }

    fn enforce_features(&mut self) {
        // Each offload whose features are recorded, and what they are to be.
        let parts = |offload: Offload| -> BTreeMap<String, bool> {
            let claim = self.wanted.offloads.get(&offload);
            let recorded = features::of_offload(offload).iter().filter_map(|name| {
                let before = self.record.features.get(*name)?;
                Some(((*name).to_owned(), *claim.unwrap_or(before)))
            });
            recorded.collect()
        };
        let target: BTreeMap<Offload, BTreeMap<String, bool>> = Offload::ALL
            .into_iter()
            .map(|offload| (offload, parts(offload)))
            .filter(|(_, parts)| !parts.is_empty())
            .collect();
        if target.is_empty() {
            return;
        }
        let index = self.record.index;
        let was = match self.cards.features(index) {
            Ok(was) => was,
            Err(error) => {
                let keys = target.into_keys().map(CardKey::Offload);
                return self.outcome.fail(keys, &unreadable(&error));
            }
        };
        let is_sent = |offload: Offload, parts: &BTreeMap<String, bool>| {
            let present = asked_for(parts, &was);
            let wanted = Target::Features(parts.clone());
            let place = self.place(CardKey::Offload(offload));
            present != wanted && self.attempts.permits(place, &wanted, Some(&present))
        };
        let sent: Vec<Offload> = target
            .iter()
            .filter(|(offload, parts)| is_sent(**offload, parts))
            .map(|(offload, _)| *offload)
            .collect();
        let (mut refused, mut read) = (None, Ok(was.clone()));
        if !sent.is_empty() {
            let is_other = |(name, on): &(&String, &bool)| {
                was.get(*name).is_none_or(|feature| feature.is_wanted != **on)
            };
            let parts = sent.iter().flat_map(|offload| &target[offload]);
            let changes: BTreeMap<String, bool> =
                parts.filter(is_other).map(|(name, on)| (name.clone(), *on)).collect();
            refused = self.cards.set_features(index, &changes).err().map(|error| error.to_string());
            read = self.cards.features(index);
        }
        for offload in sent {
            let parts = &target[&offload];
            let found = read.as_ref().ok().map(|now| asked_for(parts, now));
            let has_value = read.as_ref().is_ok_and(|now| self.has_offload(offload, parts, now));
            let outcome = match &refused {
                Some(why) => Outcome::Refused(why.clone()),
                None if has_value => Outcome::InForce,
                None => Outcome::Other,
            };
            let place = self.place(CardKey::Offload(offload));
            self.attempts.note(place, Target::Features(parts.clone()), found, outcome);
        }
        let now = match read {
            Ok(now) => now,
            Err(error) => {
                let keys = target.into_keys().map(CardKey::Offload);
                return self.outcome.fail(keys, &unreadable(&error));
            }
        };
        for (&offload, parts) in &target {
            self.judge_offload(offload, parts, &was, &now);
        }
        let is_recorded = |name: &String| target.values().any(|parts| parts.contains_key(name));
        self.outcome.state.features = now.into_iter().filter(|(name, _)| is_recorded(name)).collect();
    }

    /// Returns whether an offload is as claimed, or its features are asked for as before.
    fn has_offload(&self, offload: Offload, parts: &BTreeMap<String, bool>, now: &Features) -> bool {
        match self.wanted.offloads.get(&offload) {
            Some(on) => features::offload(now, offload).is_some_and(|facts| facts.on == *on),
            None => asked_for(parts, now) == Target::Features(parts.clone()),
        }
    }

    /// Notes whether an offload is as it is to be.
    fn judge_offload(
        &mut self,
        offload: Offload,
        parts: &BTreeMap<String, bool>,
        was: &Features,
        now: &Features,
    ) {
        let key = CardKey::Offload(offload);
        let place = self.place(key);
        let target = Target::Features(parts.clone());
        let claimed = self.wanted.offloads.get(&offload).copied();
        let text = |found: &Features| {
            features::offload(found, offload).map_or("unknown", |facts| on_off(facts.on)).to_owned()
        };
        if self.has_offload(offload, parts, now) {
            self.outcome.note(key, claimed.is_some(), text(was), text(now));
            if claimed.is_some() {
                self.attempts.note_in_force(place, target);
            } else {
                self.attempts.forget(place);
                self.record.features.retain(|name, _| !parts.contains_key(name));
            }
            return;
        }
        let present = asked_for(parts, now);
        if claimed == Some(true) && present == target {
            let problem = "stays off, probably because it needs another offload, such as tx-checksum";
            self.outcome.problems.insert(key, problem.to_owned());
            return;
        }
        let wanted = claimed.map_or("what it was before", on_off);
        self.tell_unmet(key, &target, Some(&present), wanted, &text(now));
    }

    fn enforce_link(&mut self) {
        let Some(before) = self.record.link.clone() else { return };
        let wanted = link_target(&before, &self.wanted);
        let (key, target) = (CardKey::Link, Target::Link(wanted.clone()));
        let place = self.place(key);
        let present = |link: &LinkSettings| Target::Link(without_negotiated(link.clone()));
        let was = match self.read_link() {
            Ok(was) => was,
            Err(why) => return self.outcome.fail([key], &why),
        };
        let mut has_carrier = self.has_carrier();
        // At first, a speed that the card does not state may be another one.
        let is_so = match self.attempts.get(place, &target) {
            Some(_) => has_link(&was, &wanted, has_carrier),
            None => is_link(&was, &wanted),
        };
        let mut now = was.clone();
        if !is_so && self.attempts.permits(place, &target, Some(&present(&was))) {
            let refused = self.cards.set_link(self.record.index, &wanted).err();
            let refused = refused.map(|error| Outcome::Refused(error.to_string()));
            now = match self.read_link() {
                Ok(now) => now,
                Err(why) => {
                    self.attempts.note(place, target, None, refused.unwrap_or(Outcome::Other));
                    return self.outcome.fail([key], &why);
                }
            };
            has_carrier = self.has_carrier();
            let is_so = has_link(&now, &wanted, has_carrier);
            let outcome = refused.unwrap_or(if is_so { Outcome::InForce } else { Outcome::Other });
            self.attempts.note(place, target.clone(), Some(present(&now)), outcome);
        }
        let attempt = self.attempts.get(place, &target);
        let is_refused = attempt.is_some_and(|attempt| matches!(attempt.outcome, Outcome::Refused(_)));
        let has_value =
            if is_refused { is_link(&now, &wanted) } else { has_link(&now, &wanted, has_carrier) };
        if has_value {
            let is_claimed = self.wanted.has_link();
            self.outcome.note(key, is_claimed, link_text(&was), link_text(&now));
            if is_claimed {
                self.attempts.note_in_force(place, target);
            } else {
                self.attempts.forget(place);
                self.record.link = None;
            }
        } else {
            self.tell_unmet(key, &target, Some(&present(&now)), &link_text(&wanted), &link_text(&now));
        }
        self.outcome.state.link = Some(without_negotiated(now));
    }

    fn read_link(&mut self) -> Result<LinkSettings, String> {
        match self.cards.link(self.record.index) {
            Ok(Some(link)) => Ok(link),
            Ok(None) => Err("the card has no such setting any more".to_owned()),
            Err(error) => Err(unreadable(&error)),
        }
    }

    fn has_carrier(&mut self) -> bool {
        let presence = self.cards.presence(&self.record.name);
        presence.is_ok_and(|presence| presence.is_some_and(|presence| presence.has_carrier))
    }

    /// Notes why a setting does not have its value, and whether that is tried again.
    fn tell_unmet(
        &mut self,
        key: CardKey,
        target: &Target,
        present: Option<&Target>,
        wanted: &str,
        found: &str,
    ) {
        let attempt = self.attempts.get(self.place(key), target);
        self.outcome.has_errors |= attempt.is_none_or(|attempt| attempt.is_pending(present));
        let problem = match attempt.map(|attempt| &attempt.outcome) {
            Some(Outcome::Refused(why)) => format!("cannot be set to {wanted}: {why}"),
            Some(Outcome::InForce) => format!(
                "another program keeps setting it to {found}; it is set to {wanted} again after a pause"
            ),
            Some(Outcome::Other) | None => format!("the card makes {found} of {wanted}"),
        };
        self.outcome.problems.insert(key, problem);
    }
}

/// Returns the value of a parameter.
fn value_of(parameter: PnicParameter, found: &Parameters) -> Option<Target> {
    found.get(&parameter).map(|facts| Target::Parameter(facts.value))
}

/// Returns which of these features are asked for.
fn asked_for(parts: &BTreeMap<String, bool>, found: &Features) -> Target {
    let present = parts.keys().filter_map(|name| Some((name.clone(), found.get(name)?.is_wanted)));
    Target::Features(present.collect())
}

/// Returns whether the driver changes a parameter by itself.
pub(super) fn is_adapted(parameter: PnicParameter, found: &Parameters) -> bool {
    parameter.adapted_by().and_then(|switch| found.get(&switch)).is_some_and(|facts| facts.value != 0)
}
