//! The state of sources as the worker that owns them sees it.

use std::time::{Duration, Instant};

use super::reserved::Reserved;
use super::round::Round;
use crate::wake::timers::{Deadline, SourceIdx};

/// The state of one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// The source is served in each round.
    pub(super) active: bool,
    /// The port has a reservation on an uplink.
    pub(super) reserved: bool,
    /// The source's first frame waits for a receiver's room, so announcements of room concern it.
    pub(super) waits: bool,
    /// Time at which the source is served again; `None` if nothing but an event makes it active.
    pub(super) wake: Option<Instant>,
    /// The source's timer. One is enough, however often the source sleeps before it expires.
    timer: Deadline,
    /// The time for which the source is polled after its last frame.
    patience: Duration,
    /// The end of that time; `None` if the source is always polled.
    patient_until: Option<Instant>,
    /// Nanoseconds spent in the source's bursts since the last measurement.
    pub(super) busy: u64,
}

impl State {
    /// The state of a source that has never been served.
    pub(super) fn new(now: Instant, patience: Duration, reserved: bool) -> Self {
        let patient_until = now.checked_add(patience);
        Self {
            active: false,
            reserved,
            waits: false,
            wake: None,
            timer: Deadline::default(),
            patience,
            patient_until,
            busy: 0,
        }
    }

    /// Lets the source sleep until `when`. Returns `true` if the caller has to set a timer for it.
    #[must_use]
    pub(super) fn sleep_until(&mut self, when: Instant) -> bool {
        self.wake = Some(when);
        self.timer.request(when)
    }

    /// Notes that the timer for `when` has expired.
    pub(super) fn timer_expired(&mut self, when: Instant) {
        self.timer.expire(when);
    }

    /// Tells whether nothing but an event makes the source active.
    pub(super) fn needs_event(&self) -> bool {
        !self.active && !self.waits && self.wake.is_none()
    }

    /// Notes that the source had a frame at `now`.
    #[inline]
    pub(super) fn had_frame(&mut self, now: Instant) {
        self.patient_until = now.checked_add(self.patience);
    }

    /// Changes the time for which the source is polled after its last frame. That time begins now.
    pub(super) fn set_patience(&mut self, now: Instant, patience: Duration) {
        self.patience = patience;
        self.had_frame(now);
    }

    /// Tells whether the source is still polled although it has no frame.
    ///
    /// Every round asks this of every source, and the next frame waits for the end of the round: a
    /// comparison is cheaper than the difference of two times.
    #[inline]
    pub(super) fn is_patient(&self, now: Instant) -> bool {
        self.patient_until.is_none_or(|until| now < until)
    }
}

/// The states of all sources of the plan, and lists of those that need attention.
///
/// Only the states of the worker's own sources have a meaning.
#[derive(Debug, Default)]
pub(super) struct SourceStates {
    pub(super) states: Vec<State>,
    /// Sources with [`State::active`].
    pub(super) round: Round,
    /// Those of them with [`State::reserved`].
    pub(super) reserved: Reserved,
    /// Sources with [`State::waits`].
    pub(super) waiting: Vec<SourceIdx>,
}

impl SourceStates {
    /// The state of a source.
    #[inline]
    pub(super) fn state(&mut self, source: SourceIdx) -> &mut State {
        &mut self.states[source.index()]
    }

    /// Starts over with the sources of a new plan.
    pub(super) fn reset(&mut self, states: impl Iterator<Item = State>) {
        self.states = states.collect();
        self.round.clear();
        self.reserved.clear();
        self.waiting.clear();
    }

    /// Adds a source to the active ones.
    pub(super) fn activate(&mut self, source: SourceIdx) {
        let state = &mut self.states[source.index()];
        (state.active, state.wake) = (true, None);
        self.round.add(source);
        if state.reserved {
            self.reserved.add(source);
        }
    }

    /// Removes the round's current source from the active ones.
    #[inline]
    pub(super) fn deactivate_current(&mut self, source: SourceIdx) {
        let state = &mut self.states[source.index()];
        state.active = false;
        if state.reserved {
            self.reserved.remove(source);
        }
        self.round.remove_current();
    }

    /// Notes that the turn of an active source at an uplink has begun.
    pub(super) fn begin_turn(&mut self, source: SourceIdx) {
        if self.state(source).reserved {
            self.reserved.begin_turn(source);
        }
    }

    /// Removes a source that now belongs to another worker from the active ones.
    pub(super) fn give_away(&mut self, source: SourceIdx) {
        let state = self.state(source);
        (state.active, state.wake) = (false, None);
        self.round.remove(source);
        self.reserved.remove(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_sleeps_again_and_again_has_one_timer() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut state = State::new(start, Duration::ZERO, false);
        let timers = (0_u64..1000).filter(|ms| state.sleep_until(at(10 + ms))).count();
        assert_eq!((timers, state.wake), (1, Some(at(1009))));
        state.timer_expired(at(10));
        assert!(state.sleep_until(at(1009)), "the timer that expired was too early");
        assert!(state.sleep_until(at(20)), "an earlier time needs another timer");
    }
}
