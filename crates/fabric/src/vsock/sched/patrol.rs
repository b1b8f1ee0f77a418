//! When the fabric patrols attached ends: it looks at them although no bell has come.

use std::time::{Duration, Instant};

/// The patrols. There are none while no end is attached.
///
/// Programs that overwrite words of others seldom overwrite only one, and most overwritten words
/// are found without a patrol. So after a fault in any word, all ends are looked at within a period
/// if there are not too many. At other times patrols are rare: a look at an end at rest is the
/// first use of memory that has rested.
#[derive(Debug, Default)]
pub(crate) struct Patrols {
    /// Time of the next one.
    next: Option<Instant>,
    /// End of the time in which there are more of them, after the last fault.
    alarmed_until: Option<Instant>,
}

impl Patrols {
    /// Time between two patrols without a fault, and least time between two looks at an end.
    pub(crate) const PERIOD: Duration = Duration::from_secs(10);
    /// Most ends of one patrol, so that other work of the thread does not wait for long.
    pub(crate) const MOST_ENDS: usize = 16;
    /// Time between two patrols after a fault.
    pub(crate) const PAUSE: Duration = Duration::from_millis(800);
    /// Time after a fault in which there are more patrols.
    pub(crate) const ALARM: Duration = Duration::from_secs(60);

    /// Begins with patrols, or goes on with them: an end was attached.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.next.get_or_insert(now + Self::PERIOD);
    }

    /// Time of the next patrol.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Tells whether a patrol is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|at| at <= now)
    }

    /// Notes that a fault was found in the words of an end.
    pub(crate) fn alarm(&mut self, now: Instant) {
        self.alarmed_until = Some(now + Self::ALARM);
        self.next = self.next.map(|next| next.min(now + Self::PAUSE));
    }

    /// Notes that a patrol is over. `any_attached` tells whether any end is attached.
    pub(crate) fn done(&mut self, any_attached: bool, now: Instant) {
        let is_alarmed = self.alarmed_until.is_some_and(|until| now < until);
        // Patrols of an alarm look only at ends whose period is over, so they are frequent however
        // few ends there are.
        let interval = if is_alarmed { Self::PAUSE } else { Self::PERIOD };
        self.next = any_attached.then(|| now + interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Patrols::PERIOD;

    #[test]
    fn patrols_are_frequent_after_a_fault_and_end_with_the_last_attached_end() {
        let (mut patrols, now) = (Patrols::default(), Instant::now());
        assert_eq!((patrols.next(), patrols.is_due(now)), (None, false));
        patrols.begin(now);
        patrols.begin(now + PERIOD / 2);
        assert_eq!((patrols.next(), patrols.is_due(now)), (Some(now + PERIOD), false));
        let now = now + PERIOD;
        assert!(patrols.is_due(now));
        patrols.done(true, now);
        assert_eq!(patrols.next(), Some(now + PERIOD), "without a fault");
        patrols.alarm(now);
        assert_eq!(patrols.next(), Some(now + Patrols::PAUSE));
        let now = now + Patrols::PAUSE;
        patrols.done(true, now);
        assert_eq!(patrols.next(), Some(now + Patrols::PAUSE), "after a fault");
        let later = now + Patrols::ALARM;
        patrols.done(true, later);
        assert_eq!(patrols.next(), Some(later + PERIOD), "long after the fault");
        patrols.done(false, later);
        assert_eq!(patrols.next(), None);
        patrols.alarm(later);
        assert_eq!(patrols.next(), None, "no end is attached");
    }
}
