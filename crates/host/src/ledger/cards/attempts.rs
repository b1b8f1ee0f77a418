//! Decides when a value is sent to a card again.
//!
//! Setting a card may interrupt its link. A value that was refused, or that another program has
//! changed, is therefore sent again only after a pause, which doubles with each attempt. What the
//! card has made of a value stays as it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::CardKey;
use crate::kernel::netlink::ethtool::link::LinkSettings;

/// Pause before the second attempt after a refusal, and between two corrections.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// Longest pause. A setting that needed no attempt for as long begins anew.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// A setting of the interface with this number.
pub(super) type Place = (u32, CardKey);

/// A value that a setting is to have, or has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Link(LinkSettings),
    Parameter(u32),
    /// Features by the kernel's names, and whether each is asked for.
    Features(BTreeMap<String, bool>),
}

/// The result of sending a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The setting had the value afterwards.
    InForce,
    /// The kernel refused it, for this reason.
    Refused(String),
    /// The setting had another value afterwards, or could not be read.
    Other,
}

/// The last attempt to give a setting its value.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    target: Target,
    pub(super) outcome: Outcome,
    /// Value afterwards, if it is known.
    found: Option<Target>,
    /// Pause after this attempt.
    pause: Duration,
    /// Time from which the same value may be sent again.
    next: Instant,
}

/// The last attempts for all settings of all cards.
#[derive(Debug)]
pub(crate) struct Attempts {
    now: Instant,
    by_place: BTreeMap<Place, Attempt>,
}

impl Attempts {
    /// Makes a memory without any attempt.
    pub(crate) const fn new(now: Instant) -> Self {
        Self { now, by_place: BTreeMap::new() }
    }

    /// Sets the time of the attempts that follow.
    pub(crate) const fn begin(&mut self, now: Instant) {
        self.now = now;
    }

    /// Returns the last attempt, if it was with this value.
    pub(super) fn get(&self, place: Place, target: &Target) -> Option<&Attempt> {
        self.by_place.get(&place).filter(|attempt| attempt.target == *target)
    }

    /// Returns whether a value may be sent now. `present` is the value that the setting has.
    pub(super) fn permits(&self, place: Place, target: &Target, present: Option<&Target>) -> bool {
        let attempt = self.get(place, target);
        attempt.is_none_or(|attempt| attempt.is_pending(present) && self.now >= attempt.next)
    }

    /// Notes that a value was sent.
    pub(super) fn note(&mut self, place: Place, target: Target, found: Option<Target>, outcome: Outcome) {
        let now = self.now;
        let before = self.get(place, &target).filter(|attempt| now < attempt.next + LONGEST_PAUSE);
        let pause = match before {
            Some(attempt) => (2 * attempt.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            None if outcome == Outcome::InForce => Duration::ZERO,
            None => FIRST_PAUSE,
        };
        let attempt = Attempt { target, outcome, found, pause, next: now + pause };
        self.by_place.insert(place, attempt);
    }

    /// Notes that a setting has its value without an attempt.
    pub(super) fn note_in_force(&mut self, place: Place, target: Target) {
        if self.get(place, &target).is_none() {
            let found = Some(target.clone());
            self.note(place, target, found, Outcome::InForce);
        }
    }

    /// Forgets a setting that is given back.
    pub(super) fn forget(&mut self, place: Place) {
        self.by_place.remove(&place);
    }

    /// Forgets interfaces that are no longer recorded.
    pub(super) fn retain(&mut self, is_recorded: impl Fn(u32) -> bool) {
        self.by_place.retain(|(index, _), _| is_recorded(*index));
    }
}

impl Attempt {
    /// Returns whether the value is to be sent again at some time. It is not while the setting has
    /// what the card made of it.
    pub(super) fn is_pending(&self, present: Option<&Target>) -> bool {
        self.outcome != Outcome::Other || self.found.is_none() || self.found.as_ref() != present
    }
}

#[cfg(test)]
mod tests {
    use taut_api::pnic::PnicParameter;

    use super::*;

    const RING: Place = (7, CardKey::Parameter(PnicParameter::RxRing));
    const WANTED: Target = Target::Parameter(512);
    const OTHER: Target = Target::Parameter(64);

    #[test]
    fn pauses_double_up_to_an_hour_and_end_with_the_target() {
        let start = Instant::now();
        let mut attempts = Attempts::new(start);
        let refused = || Outcome::Refused("busy".to_owned());
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert!(attempts.permits(RING, &WANTED, Some(&OTHER)));
            attempts.note(RING, WANTED, Some(OTHER), refused());
            let sent = now;
            while !attempts.permits(RING, &WANTED, Some(&OTHER)) {
                now += FIRST_PAUSE;
                attempts.begin(now);
            }
            pauses.push((now - sent).as_secs() / 60);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        attempts.note(RING, WANTED, Some(OTHER), refused());
        assert!(attempts.permits(RING, &Target::Parameter(8), Some(&OTHER)), "another target");
        assert!(attempts.permits((8, RING.1), &WANTED, Some(&OTHER)), "another interface");
        attempts.forget(RING);
        assert!(attempts.permits(RING, &WANTED, Some(&OTHER)));
    }

    #[test]
    fn a_foreign_change_is_corrected_at_once_and_then_at_most_once_a_minute() {
        let start = Instant::now();
        let mut attempts = Attempts::new(start);
        attempts.note(RING, WANTED, Some(WANTED), Outcome::InForce);
        for (seconds, expected) in [(0, true), (1, false), (59, false), (60, true), (179, false), (180, true)]
        {
            attempts.begin(start + Duration::from_secs(seconds));
            assert_eq!(attempts.permits(RING, &WANTED, Some(&OTHER)), expected, "{seconds} s");
            if expected {
                attempts.note(RING, WANTED, Some(WANTED), Outcome::InForce);
            }
        }
        // After a long time in force it begins anew.
        attempts.begin(start + 3 * LONGEST_PAUSE);
        attempts.note(RING, WANTED, Some(WANTED), Outcome::InForce);
        assert!(attempts.permits(RING, &WANTED, Some(&OTHER)));
    }

    #[test]
    fn what_the_card_has_made_of_a_value_stays() {
        let start = Instant::now();
        let mut attempts = Attempts::new(start);
        attempts.note(RING, WANTED, Some(OTHER), Outcome::Other);
        attempts.begin(start + LONGEST_PAUSE);
        assert!(!attempts.permits(RING, &WANTED, Some(&OTHER)));
        assert!(attempts.permits(RING, &WANTED, Some(&Target::Parameter(8))), "another program's");
    }
}
