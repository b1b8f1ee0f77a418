//! Settings of network cards (row VN-6): put in force when they or the card change, and given back
//! when the plan no longer has them.
//!
//! A change of a setting may interrupt the link for seconds, and a driver that is asked for its
//! settings may be busy for as long. Each second only the interfaces are looked at, which the
//! kernel knows without their drivers: number, state, carrier. Settings are read if one of these or
//! the plan has changed, and once a minute. The [ledger](crate::ledger::cards) decides by the
//! [`Attempts`] so far which values are sent again.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use taut_api::Name;
use taut_api::enforcement::{HostPlan, HostReport};
use taut_api::pnic::PnicSettings;

use crate::kernel::cards::{self, SystemCards};
use crate::ledger::cards::{Attempts, SettledCard, SettledCards};
use crate::ledger::{Holder, Ledger, LedgerError};

/// Time between two looks at the interfaces.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two looks at the settings of unchanged interfaces.
const READ: Duration = Duration::from_secs(60);

/// Name of this part in the report.
pub(super) const WHAT: &str = "network cards";

/// The part of enforcement that sets network cards.
#[derive(Debug)]
pub(super) struct Cards {
    ledger: Ledger,
    kernel: Box<dyn cards::Cards + Send>,
    /// Settings of the last plan, once there was one.
    wanted: Option<BTreeMap<Name, PnicSettings>>,
    /// The cards as the last attempt left them; none if it failed.
    settled: Option<SettledCards>,
    /// An earlier process, or this one, has changed cards.
    has_changes: bool,
    /// The last attempt failed because the ledger could not be kept.
    is_unrecorded: bool,
    /// Values that were sent to the cards.
    attempts: Attempts,
    /// Time of the next look at the interfaces.
    next_look: Instant,
    /// Time of the next look at the settings.
    next_read: Instant,
}

impl Cards {
    /// Reads from the ledger whether an earlier process has changed cards. See
    /// [`super::Enforcer::new`].
    pub(super) fn new(root: &Path, ledger: Ledger) -> Result<Self, LedgerError> {
        Self::with_kernel(Box::new(SystemCards::of(root)), ledger)
    }

    fn with_kernel(kernel: Box<dyn cards::Cards + Send>, ledger: Ledger) -> Result<Self, LedgerError> {
        let has_changes = ledger.has_cards(Holder::Daemon)?;
        let now = Instant::now();
        Ok(Self {
            ledger,
            kernel,
            wanted: None,
            settled: None,
            has_changes,
            is_unrecorded: false,
            attempts: Attempts::new(now),
            next_look: now,
            next_read: now,
        })
    }

    /// Returns whether no card is changed.
    pub(super) const fn is_idle(&self) -> bool {
        !self.has_changes
    }

    /// Makes the cards as the plan wants them, and reports what is not in force.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read or written. [`note_unrecorded`] reports that
    /// for each card.
    pub(super) fn settle(
        &mut self,
        plan: &HostPlan,
        now: Instant,
        report: &mut HostReport,
    ) -> Result<(), LedgerError> {
        let is_new = self.wanted.as_ref() != Some(&plan.cards);
        if !is_new && now < self.next_look {
            return Ok(());
        }
        self.next_look = now + LOOK;
        if is_new {
            self.wanted = Some(plan.cards.clone());
        }
        if plan.cards.is_empty() && !self.has_changes {
            report.cards.clear();
            return Ok(());
        }
        if !is_new && !self.is_due(now) {
            return Ok(());
        }
        self.settled = None;
        if self.is_unrecorded {
            // Drivers are not asked each second for what cannot be recorded.
            self.ledger.try_writing()?;
        }
        self.next_read = now + READ;
        self.attempts.begin(now);
        let wanted = plan.cards.iter().map(|(name, settings)| (name.to_string(), settings.clone())).collect();
        let (kernel, attempts) = (&mut *self.kernel, &mut self.attempts);
        let settled = self.ledger.settle_cards_again(Holder::Daemon, &wanted, kernel, attempts);
        self.is_unrecorded = settled.is_err();
        let settled = settled?;
        self.has_changes = self.ledger.has_cards(Holder::Daemon)?;
        report.cards = settled
            .iter()
            .filter_map(|(name, card)| Some((name.parse().ok()?, problems(card))))
            .filter(|(name, problems): &(Name, Vec<String>)| {
                plan.cards.contains_key(name) || !problems.is_empty()
            })
            .collect();
        self.settled = Some(settled);
        Ok(())
    }

    /// Returns whether something about a card has changed since the last attempt, or something is
    /// to be tried again.
    fn is_due(&mut self, now: Instant) -> bool {
        let Some(settled) = &self.settled else { return true };
        let kernel = &mut *self.kernel;
        let reads = now >= self.next_read;
        if reads {
            self.next_read = now + READ;
            if settled.values().any(|card| card.has_errors) {
                return true;
            }
        }
        let mut has_changed = |(name, card): (&String, &SettledCard)| -> io::Result<bool> {
            let presence = kernel.presence(name)?;
            if presence != card.presence {
                return Ok(true);
            }
            let Some(present) = presence.filter(|_| reads) else { return Ok(false) };
            Ok(card.state.read_again(present.index, kernel)? != card.state)
        };
        // An error is no evidence.
        settled.iter().any(|card| has_changed(card).unwrap_or(false))
    }
}

/// Reports that no card of the plan is known to be as wanted, because the ledger has an error.
pub(super) fn note_unrecorded(plan: &HostPlan, report: &mut HostReport) {
    let Some(unrecorded) = report.unrecorded.iter().find(|unrecorded| unrecorded.what == WHAT) else {
        return;
    };
    let problem = format!("its former settings cannot be recorded: {}", unrecorded.causes.join(": "));
    report.cards = plan.cards.keys().map(|name| (name.clone(), vec![problem.clone()])).collect();
}

/// Describes what is wrong with a card.
fn problems(card: &SettledCard) -> Vec<String> {
    if card.index.is_none() && card.problems.is_empty() {
        return vec!["the host has no such interface now".to_owned()];
    }
    card.problems.iter().map(|(key, why)| format!("{key}: {why}")).collect()
}

#[cfg(test)]
mod tests;
