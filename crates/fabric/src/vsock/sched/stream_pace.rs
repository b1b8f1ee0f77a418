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
//! not gather, and when so many do that their sender might run out of room or credit.

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
/// Packets in a look from which on sleeps are shorter: half of the ring that QEMU gives the device.
const MANY_PACKETS: u32 = 64;
/// Part of its credit that a sender may use up between two looks: one of so many.
const PART_OF_CREDIT: u32 = 2;
/// So many sleeps in a row that were not worth it, or too long, end the sleeps. Fewer tell nothing:
/// guests and the thread wait for their CPUs now and then.
const BAD: u32 = 8;
/// Time without sleeps after some that were not worth it, or too long.
const REST: Duration = Duration::from_millis(100);

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
    /// Number of sleeps in a row that were not worth it, or too long.
    bad: u32,
    /// End of the time without sleeps.
    not_before: Option<Instant>,
    /// Number of the present look.
    look: u32,
    /// What the present look has found: packets, bytes, and whether some sender has used up much of
    /// its credit.
    packets: u32,
    bytes: u32,
    used_credit: bool,
}

impl StreamPace {
    /// Allows or forbids sleeps.
    pub(crate) fn allow(&mut self, allowed: bool) {
        self.allowed = allowed;
    }

    /// Notes a packet with payload of a flow whose sender may be `credit` bytes ahead of its
    /// receiver.
    #[inline]
    pub(crate) fn on_payload(&mut self, flow: &mut OneWay, bytes: u32, credit: u32, now: Instant) {
        let last = if flow.packets >= STREAM { &mut self.stream } else { &mut self.single };
        *last = Some(now);
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.used_credit |= flow.add_to_look(self.look, bytes) >= credit / PART_OF_CREDIT;
    }

    /// Returns how long the thread, which has nothing to do, sleeps before its next look; `None` if
    /// it goes on polling.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Duration> {
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| now.saturating_duration_since(at) < RECENT);
        let streams = self.allowed && is_recent(self.stream) && !is_recent(self.single);
        if !streams || self.not_before.is_some_and(|end| now < end) {
            self.sleep = None;
            return None;
        }
        let is_much = self.used_credit || self.packets >= MANY_PACKETS;
        let is_worth_it = self.packets >= ENOUGH_PACKETS || self.bytes >= ENOUGH_BYTES;
        let was_bad = match self.sleep {
            Some(SHORTEST) => is_much,
            Some(LONGEST) => !is_worth_it,
            _ => false,
        };
        self.bad = if was_bad { self.bad + 1 } else { 0 };
        let sleep = match self.sleep {
            None => Some(SHORTEST),
            Some(_) if self.bad == BAD => None,
            Some(last) if is_much => Some((last / 2).max(SHORTEST)),
            Some(last) => Some((2 * last).min(LONGEST)),
        };
        if sleep.is_none() {
            self.not_before = Some(now + REST);
        }
        self.sleep = sleep;
        self.look = self.look.wrapping_add(1);
        (self.packets, self.bytes, self.used_credit) = (0, 0, false);
        sleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDIT: u32 = 256 << 10;

    /// A pace that may sleep, a flow that streams, and a time.
    fn streaming() -> (StreamPace, OneWay, Instant) {
        let mut pace = StreamPace::default();
        pace.allow(true);
        let mut flow = OneWay::default();
        (0..STREAM).for_each(|_| flow.add());
        (pace, flow, Instant::now())
    }

    /// Has a look find so many packets of so many bytes. Returns the microseconds of the sleep
    /// after it.
    fn look(pace: &mut StreamPace, flow: &mut OneWay, found: (u32, u32), now: Instant) -> Option<u128> {
        (0..found.0).for_each(|_| pace.on_payload(flow, found.1, CREDIT, now));
        pace.next(now).map(|sleep| sleep.as_micros())
    }

    #[test]
    fn sleeps_grow_while_packets_gather_and_shrink_when_they_are_many() {
        let (mut pace, mut flow, now) = streaming();
        let mut next = |packets, bytes| look(&mut pace, &mut flow, (packets, bytes), now);
        let growing: Vec<_> = (0..5).map(|_| next(4, 256)).collect();
        assert_eq!(growing, [50, 100, 200, 400, 400].map(Some));
        assert_eq!(next(1, 16 << 10), Some(400), "few large packets are worth it, too");
        assert_eq!([next(64, 1), next(4, 32 << 10), next(64, 1)], [200, 100, 50].map(Some));
        assert_eq!(next(4, 1), Some(100));
    }

    #[test]
    fn sleeps_end_for_a_while_when_they_are_not_worth_it_or_too_long() {
        for found in [(3, 256), (MANY_PACKETS, 256), (1, CREDIT / PART_OF_CREDIT)] {
            let (mut pace, mut flow, mut now) = streaming();
            let sleeps = (0..20).take_while(|_| look(&mut pace, &mut flow, found, now).is_some()).count();
            assert!((BAD as usize..=BAD as usize + 3).contains(&sleeps), "{found:?}: {sleeps}");
            now += REST.saturating_sub(Duration::from_millis(1));
            assert_eq!(look(&mut pace, &mut flow, found, now), None, "{found:?}");
            now += Duration::from_millis(1);
            assert_eq!(look(&mut pace, &mut flow, found, now), Some(50), "{found:?}");
        }
    }

    #[test]
    fn only_streams_wait_and_only_where_it_is_allowed() {
        let (mut pace, mut flow, mut now) = streaming();
        assert_eq!(pace.next(now), None, "nothing flows");
        assert!(look(&mut pace, &mut flow, (4, 1), now).is_some());
        pace.allow(false);
        assert_eq!(look(&mut pace, &mut flow, (4, 1), now), None);
        pace.allow(true);
        let mut request = OneWay::default();
        assert_eq!(look(&mut pace, &mut request, (1, 1), now), None, "requests do not wait");
        now += RECENT;
        assert_eq!(pace.next(now), None, "the stream is over");
        assert!(look(&mut pace, &mut flow, (4, 1), now).is_some());
    }
}
