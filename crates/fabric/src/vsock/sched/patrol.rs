//! When the fabric patrols attached ends: it looks at them although no bell has come.

use std::time::{Duration, Instant};

use crate::vsock::proto::{ChannelIdx, GuestIdx};

/// The patrols. There are none while no end is attached.
#[derive(Debug, Default)]
pub(crate) struct Patrols {
    /// Time of the next one.
    next: Option<Instant>,
    /// The end at which the last one has stopped; `None` if the next one begins with the first end.
    last: Option<(GuestIdx, ChannelIdx)>,
}

impl Patrols {
    /// Time in which each attached end is looked at once, if there are not too many.
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

    /// Returns the end behind which the next patrol begins; `None` if it begins with the first end.
    pub(crate) fn last(&self) -> Option<(GuestIdx, ChannelIdx)> {
        self.last
    }

    /// Notes that a patrol is over. `last` is the end at which it has stopped, `None` if it has
    /// looked at the last one. `attached` is the number of all ends.
    pub(crate) fn done(&mut self, last: Option<(GuestIdx, ChannelIdx)>, attached: usize, now: Instant) {
        self.last = last;
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
        assert_eq!((patrols.is_due(now), patrols.last()), (true, None));
        let stopped = Some((GuestIdx(3), ChannelIdx(7)));
        patrols.done(stopped, 2 * Patrols::MOST_ENDS + 1, now);
        assert_eq!(patrols.next(), Some(now + PERIOD / 3));
        assert_eq!((patrols.is_due(now + PERIOD / 3), patrols.last()), (true, stopped));
        patrols.done(None, Patrols::MOST_ENDS, now);
        assert_eq!((patrols.next(), patrols.last()), (Some(now + PERIOD), None));
        patrols.done(None, 2000, now);
        assert_eq!(patrols.next(), Some(now + Patrols::PAUSE));
        patrols.done(None, 0, now);
        assert_eq!(patrols.next(), None);
    }
}
