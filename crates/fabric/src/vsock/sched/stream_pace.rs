//! Pace of streams: how long the thread sleeps between two looks at the ring of a sender that
//! streams.
//!
//! A thread that looks at a ring all the time takes the packets of a stream one by one, and a
//! thread that waits for kicks is woken for each of them. Where guests and the thread have few CPUs
//! together, each look and each kick takes time from a guest, and each packet costs the receiver an
//! interrupt. While the thread sleeps, packets gather in the ring: the next look takes many, and
//! the receiver is interrupted once for all of them.
//!
//! Whoever waits for an answer does not wait for this: only packets that many others have come
//! before, with nothing sent the other way, are a stream. Sleeps end for a while when packets do
//! not gather, when so many do that their sender might run out of room or credit, and when they
//! come so fast that looks and kicks cost their sender little.

use std::time::{Duration, Instant};

use crate::vsock::proto::OneWay;

/// This many packets in a row, without payload from the other side, are a stream.
const STREAM: u32 = 16;
/// Time for which a packet tells what flows.
const RECENT: Duration = Duration::from_millis(2);
/// Shortest sleep. The kernel's timers add some 50 µs.
const SHORTEST: Duration = Duration::from_micros(50);
/// Longest sleep.
const LONGEST: Duration = Duration::from_micros(400);
/// Packets in a look, or bytes, that make a sleep worth it.
const ENOUGH_PACKETS: u32 = 4;
const ENOUGH_BYTES: u32 = 16 << 10;
/// Part of its ring, and of its credit, that a sender may use up between two looks: one of so many.
const PART: u32 = 2;
/// Packets, and bytes, a microsecond from which on a stream is fast.
const FAST_PACKETS: f64 = 0.2;
const FAST_BYTES: f64 = 500.0;
/// A sleep that was too long adds so much to the score, another one takes 1 from it. So sleeps end
/// if more than a quarter of them are too long.
const TOO_LONG: u32 = 3;
/// Score that ends the sleeps. A few bad sleeps tell nothing: guests and the thread wait for their
/// CPUs now and then.
const TOO_OFTEN: u32 = 24;
/// Number of sleeps in a row, each not worth it, that ends the sleeps.
const IN_VAIN: u32 = 8;
/// Time without sleeps after bad ones. It doubles each time, since each trial costs a fast stream
/// some time.
const SHORTEST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_millis(3200);
/// Shortest time without sleeps, which tells how fast a stream is.
const WITHOUT: Duration = Duration::from_millis(10);
/// Sleeps in a row after which the next time without sleeps is the shortest again.
const GOOD: u32 = 256;

/// State of the decision.
#[derive(Debug, Default)]
pub(crate) struct StreamPace {
    /// Sleeps are allowed: the thread shares its CPU, and its rings are polled for a while only.
    allowed: bool,
    /// Times of the last packet of a stream, and of the last other packet with payload.
    stream: Option<Instant>,
    single: Option<Instant>,
    /// The last sleep; `None` after a look without one.
    sleep: Option<Duration>,
    /// Number of sleeps since there was a time without.
    sleeps: u32,
    /// How often these were too long: see [`TOO_LONG`].
    score: u32,
    /// Number of sleeps in a row that were not worth it.
    in_vain: u32,
    /// Length and end of the last time without sleeps.
    rest: Duration,
    not_before: Option<Instant>,
    /// Number and begin of the present look.
    look: u32,
    began: Option<Instant>,
    /// What the present look has found: packets, bytes, and whether some sender has used up much of
    /// its ring or its credit.
    packets: u32,
    bytes: u32,
    is_much: bool,
}

/// How far a sender may be ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead {
    /// Bytes that the receiver lets it send.
    pub(crate) credit: u32,
    /// Descriptors of its ring.
    pub(crate) ring: u32,
}

impl StreamPace {
    /// Allows or forbids sleeps.
    pub(crate) fn allow(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// Notes a packet with payload of a flow.
    #[inline]
    pub(crate) fn on_payload(&mut self, flow: &mut OneWay, bytes: u32, ahead: Ahead, now: Instant) {
        let last = if flow.packets >= STREAM { &mut self.stream } else { &mut self.single };
        *last = Some(now);
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.is_much |= self.packets >= ahead.ring / PART;
        self.is_much |= flow.add_to_look(self.look, bytes) >= ahead.credit / PART;
    }

    /// Returns how long the thread, which has nothing to do, sleeps before its next look; `None` if
    /// it goes on polling.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Duration> {
        // First, since a fast stream is here most of the time.
        if self.not_before.is_some_and(|end| now < end) {
            return None;
        }
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| now.saturating_duration_since(at) < RECENT);
        let streams = self.allowed && is_recent(self.stream) && !is_recent(self.single);
        if !streams {
            self.begin_look(now);
            self.sleep = None;
            return None;
        }
        if self.sleep.is_none() {
            return self.begin_sleeps(now);
        }
        // An empty look does not make up for a sleep that was too long: a sender that has used up
        // its credit sends in every other one.
        let is_empty = self.packets == 0;
        self.score = match self.sleep {
            _ if self.is_fast(now) => self.score + TOO_LONG,
            Some(SHORTEST) if self.is_much => self.score + TOO_LONG,
            _ => self.score.saturating_sub(u32::from(!is_empty)),
        };
        let is_worth_it = self.packets >= ENOUGH_PACKETS || self.bytes >= ENOUGH_BYTES;
        let was_in_vain = self.sleep == Some(LONGEST) && !is_worth_it;
        self.in_vain = if was_in_vain { self.in_vain + 1 } else { 0 };
        let sleep = match self.sleep {
            _ if self.score >= TOO_OFTEN || self.in_vain >= IN_VAIN => None,
            Some(last) if self.is_much && !is_empty => Some((last / 2).max(SHORTEST)),
            Some(last) if !is_empty => Some((2 * last).min(LONGEST)),
            last => last,
        };
        match sleep {
            Some(_) => self.sleeps = self.sleeps.saturating_add(1),
            None => self.begin_rest(now),
        }
        self.sleep = sleep;
        self.begin_look(now);
        sleep
    }

    /// Decides, after some time without sleeps, whether to try them.
    fn begin_sleeps(&mut self, now: Instant) -> Option<Duration> {
        let began = *self.began.get_or_insert(now);
        if now.saturating_duration_since(began) < WITHOUT {
            return None;
        }
        if self.is_fast(now) {
            self.begin_rest(now);
        } else {
            self.sleep = Some(SHORTEST);
            self.sleeps = 1;
        }
        self.begin_look(now);
        self.sleep
    }

    fn begin_look(&mut self, now: Instant) {
        self.look = self.look.wrapping_add(1);
        self.began = Some(now);
        (self.packets, self.bytes, self.is_much) = (0, 0, false);
    }

    /// Tells whether so much came in the present look, for the time since it began, that the stream
    /// is fast.
    fn is_fast(&self, now: Instant) -> bool {
        let us = self.began.map_or(0.0, |began| now.saturating_duration_since(began).as_secs_f64() * 1e6);
        // A single burst is not a rate.
        us > 0.0
            && (f64::from(self.packets) > us.max(50.0) * FAST_PACKETS
                || f64::from(self.bytes) > us.max(50.0) * FAST_BYTES)
    }

    fn begin_rest(&mut self, now: Instant) {
        let is_first = self.rest.is_zero() || self.sleeps >= GOOD;
        self.rest = if is_first { SHORTEST_REST } else { (2 * self.rest).min(LONGEST_REST) };
        self.not_before = Some(now + self.rest);
        (self.sleeps, self.score, self.in_vain) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: Ahead = Ahead { credit: 256 << 10, ring: 128 };

    /// Time between two looks in these tests: sleep and work.
    const BETWEEN: Duration = Duration::from_micros(400);

    /// A pace that may sleep and has not for long enough, a flow that streams, and a time.
    fn streaming() -> (StreamPace, OneWay, Instant) {
        let mut pace = StreamPace { began: Instant::now().checked_sub(WITHOUT), ..StreamPace::default() };
        pace.allow(true);
        let mut flow = OneWay::default();
        (0..STREAM).for_each(|_| flow.add());
        (pace, flow, Instant::now())
    }

    /// Has a look find so many packets of so many bytes. Returns the microseconds of the sleep
    /// after it.
    fn look(pace: &mut StreamPace, flow: &mut OneWay, found: (u32, u32), now: Instant) -> Option<u128> {
        (0..found.0).for_each(|_| pace.on_payload(flow, found.1, AHEAD, now));
        pace.next(now).map(|sleep| sleep.as_micros())
    }

    /// Returns the number of sleeps until there are none, at most `most`.
    fn sleeps(
        pace: &mut StreamPace,
        flow: &mut OneWay,
        found: (u32, u32),
        now: &mut Instant,
        most: usize,
    ) -> usize {
        let count = (0..most).take_while(|_| {
            *now += BETWEEN;
            look(pace, flow, found, *now).is_some()
        });
        count.count()
    }

    #[test]
    fn sleeps_grow_while_packets_gather_and_shrink_when_they_are_many() {
        let (mut pace, mut flow, mut now) = streaming();
        let mut next = |packets, bytes| {
            now += BETWEEN;
            look(&mut pace, &mut flow, (packets, bytes), now)
        };
        let growing: Vec<_> = (0..5).map(|_| next(4, 256)).collect();
        assert_eq!(growing, [50, 100, 200, 400, 400].map(Some));
        assert_eq!(next(1, 16 << 10), Some(400), "few large packets are worth it, too");
        assert_eq!([next(64, 1), next(4, 32 << 10), next(64, 1)], [200, 100, 50].map(Some));
        assert_eq!(next(4, 1), Some(100));
    }

    #[test]
    fn sleeps_end_for_a_while_when_they_are_not_worth_it_or_too_long() {
        for found in [(3, 256), (AHEAD.ring / PART, 256), (1, AHEAD.credit / PART)] {
            let (mut pace, mut flow, mut now) = streaming();
            let count = sleeps(&mut pace, &mut flow, found, &mut now, 20);
            assert!((8..=11).contains(&count), "{found:?}: {count}");
            now += SHORTEST_REST.saturating_sub(Duration::from_millis(1));
            assert_eq!(look(&mut pace, &mut flow, found, now), None, "{found:?}");
            now += Duration::from_millis(1);
            assert_eq!(look(&mut pace, &mut flow, found, now), Some(50), "{found:?}");
        }
    }

    #[test]
    fn sleeps_end_when_more_than_a_quarter_of_them_are_bad() {
        let (mut pace, mut flow, mut now) = streaming();
        let found = [(64, 256), (64, 256), (4, 256)].into_iter().cycle();
        let mut count = 0;
        for found in found.take(100) {
            now += BETWEEN;
            if look(&mut pace, &mut flow, found, now).is_none() {
                break;
            }
            count += 1;
        }
        assert!((10..90).contains(&count), "{count}");
    }

    #[test]
    fn looks_that_find_nothing_do_not_make_up_for_bad_ones() {
        let (mut pace, mut flow, mut now) = streaming();
        let found = [(1, AHEAD.credit), (0, 0)].into_iter().cycle();
        let count = found.take(100).take_while(|&found| {
            now += BETWEEN;
            look(&mut pace, &mut flow, found, now).is_some()
        });
        assert!(count.count() < 30);
    }

    #[test]
    fn a_stream_that_is_fast_before_the_first_sleep_is_not_tried() {
        let (mut pace, mut flow, now) = streaming();
        assert_eq!(look(&mut pace, &mut flow, (3000, 64), now), None);
        assert_eq!(pace.not_before, Some(now + SHORTEST_REST));
    }

    #[test]
    fn fast_streams_do_not_wait() {
        // 63 packets in 150 µs are less than half of the ring, and so are 100 KiB of the credit.
        for found in [(63, 256), (25, 4096)] {
            let (mut pace, mut flow, mut now) = streaming();
            let count = (0..20).take_while(|_| {
                now += Duration::from_micros(150);
                look(&mut pace, &mut flow, found, now).is_some()
            });
            assert!(count.count() <= 9, "{found:?}");
        }
    }

    #[test]
    fn trials_become_rarer_until_sleeps_are_good() {
        let (mut pace, mut flow, mut now) = streaming();
        let mut rest = SHORTEST_REST;
        for _ in 0..8 {
            assert!(sleeps(&mut pace, &mut flow, (3, 256), &mut now, 20) < 20);
            assert_eq!(pace.not_before, Some(now + rest));
            rest = (2 * rest).min(LONGEST_REST);
            now = pace.not_before.unwrap();
        }
        assert_eq!(sleeps(&mut pace, &mut flow, (8, 256), &mut now, 300), 300);
        assert!(sleeps(&mut pace, &mut flow, (3, 256), &mut now, 20) < 20);
        assert_eq!(pace.not_before, Some(now + SHORTEST_REST));
    }

    #[test]
    fn only_streams_wait_and_only_where_it_is_allowed() {
        let (mut pace, mut flow, mut now) = streaming();
        assert_eq!(pace.next(now), None, "nothing flows");
        // The thread polls for some time before the first sleep.
        let mut after_polling = |pace: &mut StreamPace, flow: &mut OneWay, found| {
            let first = look(pace, flow, found, now);
            now += WITHOUT;
            (first, look(pace, flow, found, now))
        };
        assert_eq!(after_polling(&mut pace, &mut flow, (4, 1)), (None, Some(50)));
        pace.allow(false);
        assert_eq!(after_polling(&mut pace, &mut flow, (4, 1)), (None, None));
        pace.allow(true);
        let mut request = OneWay::default();
        assert_eq!(after_polling(&mut pace, &mut request, (1, 1)), (None, None), "requests do not wait");
        now += RECENT;
        assert_eq!(pace.next(now), None, "the stream is over");
    }
}
