//! When the fabric patrols attached ends: it looks at them although no bell has come.

use std::time::{Duration, Instant};

/// The patrols. There are none while no end is attached.
#[derive(Debug, Default)]
pub(crate) struct Patrols {
    /// Time of the next one.
    next: Option<Instant>,
}

impl Patrols {
    /// Time in which each attached end is looked at once, if there are not too many. No end is
    /// looked at more often.
    pub(crate) const PERIOD: Duration = Duration::from_secs(10);
    /// Most ends of one patrol, so that other work of the thread does not wait for long.
    pub(crate) const MOST_ENDS: usize = 16;
    /// Shortest time between two patrols, so that ends at rest cost little however many there are.
    pub(crate) const PAUSE: Duration = Duration::from_millis(1600);

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

    /// Notes that a patrol is over. `attached` is the number of all ends.
    pub(crate) fn done(&mut self, attached: usize, now: Instant) {
        let per_period = attached.div_ceil(Self::MOST_ENDS) as u32;
        self.next = Self::PERIOD.checked_div(per_period).map(|interval| now + interval.max(Self::PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Patrols::PERIOD;

    #[test]
    fn patrols_share_a_period_and_end_with_the_last_attached_end() {
        let (mut patrols, now) = (Patrols::default(), Instant::now());
        assert_eq!((patrols.next(), patrols.is_due(now)), (None, false));
        patrols.begin(now);
        patrols.begin(now + PERIOD / 2);
        assert_eq!((patrols.next(), patrols.is_due(now)), (Some(now + PERIOD), false));
        let now = now + PERIOD;
        assert!(patrols.is_due(now));
        patrols.done(2 * Patrols::MOST_ENDS + 1, now);
        assert_eq!((patrols.next(), patrols.is_due(now)), (Some(now + PERIOD / 3), false));
        patrols.done(Patrols::MOST_ENDS, now);
        assert_eq!(patrols.next(), Some(now + PERIOD));
        patrols.done(2000, now);
        assert_eq!(patrols.next(), Some(now + Patrols::PAUSE));
        patrols.done(0, now);
        assert_eq!(patrols.next(), None);
    }
}
