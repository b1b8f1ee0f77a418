//! Receivers that take nothing: guests without buffers for which something waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::vsock::guest::Receiver;
use crate::vsock::proto::GuestIdx;

/// A guest that has had no buffer for this long is reported.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// Guests without buffers, the one that is to be looked at first in front.
#[derive(Debug, Default)]
pub(crate) struct Starving(VecDeque<(Instant, GuestIdx)>);

impl Starving {
    /// Schedules a look at a guest that has had no buffer since then.
    #[inline]
    pub(crate) fn watch(&mut self, guest: GuestIdx, receiver: &mut Receiver, since: Instant) {
        if !std::mem::replace(&mut receiver.check_is_due, true) {
            let at = since + LONG;
            // `since` may have been some time ago.
            let place = self.0.partition_point(|(other, _)| *other <= at);
            self.0.insert(place, (at, guest));
        }
    }

    /// Forgets a removed guest.
    pub(crate) fn remove_guest(&mut self, guest: GuestIdx) {
        self.0.retain(|&(_, other)| other != guest);
    }

    /// Time of the next look.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }

    /// Takes a guest that is to be looked at now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<GuestIdx> {
        self.0.front().filter(|(at, _)| *at <= now)?;
        self.0.pop_front().map(|(_, guest)| guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_looked_at_in_the_order_of_their_times() {
        let mut starving = Starving::default();
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        for (guest, since) in [(0, 0), (1, 900), (2, 300)] {
            starving.watch(GuestIdx(guest), &mut Receiver::default(), after(since));
        }
        assert_eq!(starving.next(), Some(after(1000)));
        assert_eq!(starving.due(after(999)), None);
        let looks: Vec<_> = std::iter::from_fn(|| starving.due(after(1500))).collect();
        assert_eq!(looks, [GuestIdx(0), GuestIdx(2)]);
        assert_eq!(starving.next(), Some(after(1900)));
    }
}
