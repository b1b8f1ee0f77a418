//! Precedence of ports with a reservation on an uplink, while a worker is busier than the uplink.
//!
//! Network I/O control divides an uplink, and workers serve their sources in rounds. If many ports
//! send short frames, a round takes longer than a reservation can wait. So workers serve sources
//! whose [`Reservation`] is behind before the others.
//!
//! A [`Budget`] says how long a reservation is served. What a port sends outside counts, whether or
//! not it came first for it. What it sends to others counts if it came first. So precedence gives a
//! port its reservation and hardly more, wherever its frames go.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use taut_api::units::BitRate;

use crate::sys::lock::lock;

/// Time for which a reservation is made up for. A port that has sent nothing for longer has not
/// saved up more.
const MOST_ARREARS: Duration = Duration::from_millis(2);
/// Longest time for which a port has no precedence after it has sent more than its reservation. A
/// burst of 64 long frames takes as long at 8 Mbit/s. A smaller reservation gives precedence to a
/// burst in this time, which may be more than is reserved.
const MOST_AHEAD: Duration = Duration::from_millis(100);
/// Part of a reservation by which its budget is larger. Frames in turns that a port has by its
/// shares count as well, and do not serve the reservation.
const MARGIN: u64 = 40;
/// Bits of a byte, times nanoseconds of a second.
const BIT_NS: u128 = 8_000_000_000;

/// The time up to which a reservation is served.
#[derive(Debug)]
pub struct Budget {
    /// Bits a second.
    rate: u64,
    served_until: Instant,
}

impl Budget {
    /// Creates the budget of a reservation that counts from now on.
    pub fn new(rate: BitRate, now: Instant) -> Self {
        let rate = rate.0.saturating_add(rate.0 / MARGIN).max(1);
        Self { rate, served_until: now }
    }

    /// Tells whether less was sent than is reserved.
    fn is_behind(&self, now: Instant) -> bool {
        self.served_until <= now
    }

    /// Counts bytes on the wire that were sent by now.
    fn count(&mut self, bytes: u64, now: Instant) {
        let ns = u128::from(bytes) * BIT_NS / u128::from(self.rate);
        let time = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(MOST_ARREARS + MOST_AHEAD);
        let earliest = now.checked_sub(MOST_ARREARS).unwrap_or(now);
        self.served_until = (self.served_until.max(earliest) + time).min(now + MOST_AHEAD);
    }
}

/// A port's reservations: its own, and that of its class, which all ports of the class share.
///
/// They are those of one uplink. What a port sends by several uplinks counts together.
#[derive(Debug)]
pub struct Reservation {
    own: Option<Budget>,
    class: Option<Arc<Mutex<Budget>>>,
    /// The part that has been counted of all that the port has ever sent.
    counted: Sent,
}

/// Bytes that a port has ever sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    /// Bytes on the wire, to uplinks.
    pub outside: u64,
    /// Bytes of frames, wherever they went, dropped ones included.
    pub all: u64,
}

impl Reservation {
    /// Creates the reservations of a port that has sent so many bytes until now. `None` if it has
    /// none.
    pub fn new(own: Option<Budget>, class: Option<Arc<Mutex<Budget>>>, sent: Sent) -> Option<Self> {
        (own.is_some() || class.is_some()).then_some(Self { own, class, counted: sent })
    }

    /// Tells whether the port, or its class, has sent less than is reserved.
    pub fn is_behind(&self, now: Instant) -> bool {
        self.own.as_ref().is_some_and(|own| own.is_behind(now))
            || self.class.as_ref().is_some_and(|class| lock(class).is_behind(now))
    }

    /// Counts what the port has sent since the last time: what went outside or, if the port
    /// `came_first`, everything. `sent` is all that it has ever sent.
    pub fn count(&mut self, sent: Sent, came_first: bool, now: Instant) {
        let outside = sent.outside.saturating_sub(self.counted.outside);
        let all = sent.all.saturating_sub(self.counted.all);
        self.counted = sent;
        let bytes = if came_first { outside.max(all) } else { outside };
        if let Some(own) = &mut self.own {
            own.count(bytes, now);
        }
        if let Some(class) = &self.class {
            lock(class).count(bytes, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: u64 = 64 * 1538;

    fn mbit(rate: u64) -> BitRate {
        BitRate(rate * 1_000_000)
    }

    fn outside(bytes: u64) -> Sent {
        Sent { outside: bytes, all: bytes }
    }

    /// Looks every 100 µs for a second whether the reservation is behind, and sends a burst if it
    /// is. `other` is sent at each look in any case. Returns the rate in Mbit/s.
    fn rate(budget: &mut Budget, burst: u64, other: u64, begin: Instant) -> u64 {
        let mut sent = 0;
        for look in 0..10_000 {
            let now = begin + Duration::from_micros(100) * look;
            let bytes = other + if budget.is_behind(now) { burst } else { 0 };
            budget.count(bytes, now);
            sent += bytes;
        }
        sent * 8 / 1_000_000
    }

    #[test]
    fn precedence_gives_the_reservation_and_hardly_more() {
        let now = Instant::now();
        for (reserved, burst) in [(300, BURST), (300, 6000), (10, BURST), (700, 10_000)] {
            let found = rate(&mut Budget::new(mbit(reserved), now), burst, 0, now);
            let most = 1 + reserved + reserved * 3 / 100;
            assert!((reserved..=most).contains(&found), "{found} of {reserved} Mbit/s");
        }
    }

    #[test]
    fn what_was_sent_in_turn_counts() {
        let now = Instant::now();
        // 100 µs at 200 and at 400 Mbit/s.
        let found = [2500, 5000].map(|other| rate(&mut Budget::new(mbit(300), now), 1000, other, now));
        assert!(found[0].abs_diff(280) <= 3 && found[1] == 400, "{found:?}");
    }

    #[test]
    fn time_without_frames_is_not_made_up_for() {
        let now = Instant::now();
        let mut budget = Budget::new(mbit(8), now);
        let later = now + Duration::from_secs(10);
        // A thousand bytes take nearly a millisecond.
        budget.count(2000, later);
        assert!(budget.is_behind(later));
        budget.count(100, later);
        assert!(!budget.is_behind(later));
    }

    #[test]
    fn a_flood_on_an_idle_uplink_is_soon_forgotten() {
        let now = Instant::now();
        let mut budget = Budget::new(BitRate(1000), now);
        budget.count(u64::MAX, now);
        let [before, after] = [99, 100].map(|ms| budget.is_behind(now + Duration::from_millis(ms)));
        assert_eq!((before, after), (false, true));
    }

    #[test]
    fn ports_share_the_reservation_of_their_class() {
        let now = Instant::now();
        let class = Arc::new(Mutex::new(Budget::new(mbit(8), now)));
        let port = |own: Option<u64>, sent| {
            let own = own.map(|rate| Budget::new(mbit(rate), now));
            Reservation::new(own, Some(Arc::clone(&class)), outside(sent)).unwrap()
        };
        let [mut one, other, third] = [port(None, 5000), port(None, 0), port(Some(1), 0)];
        assert!(one.is_behind(now) && other.is_behind(now));
        one.count(outside(5000), true, now);
        assert!(other.is_behind(now), "nothing was sent since the reservation was made");
        one.count(outside(6000), true, now);
        assert!(!one.is_behind(now) && !other.is_behind(now));
        assert!(third.is_behind(now), "it has a reservation of its own");
        assert!(other.is_behind(now + Duration::from_millis(1)));
        assert!(Reservation::new(None, None, Sent::default()).is_none());
    }

    #[test]
    fn frames_to_others_count_if_they_came_first() {
        let now = Instant::now();
        let own = Some(Budget::new(mbit(8), now));
        let mut reservation = Reservation::new(own, None, Sent::default()).unwrap();
        reservation.count(Sent { outside: 0, all: 5000 }, false, now);
        assert!(reservation.is_behind(now));
        reservation.count(Sent { outside: 0, all: 10_000 }, true, now);
        // 5000 bytes take 5 ms, less 2.5 %.
        let [before, after] = [4, 5].map(|ms| reservation.is_behind(now + Duration::from_millis(ms)));
        assert_eq!((before, after), (false, true));
    }
}
