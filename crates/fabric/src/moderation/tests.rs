//! Properties of the schemes, on arbitrary traffic.

use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;

use super::adapt::ADAPT_MAX_DELAY;
use super::clock::MAX_DELAY;
use super::*;

const RING: u16 = 256;
/// Granularity of time in these tests, and allowance for rounding.
const TICK: Duration = Duration::from_nanos(1);

fn scheme() -> impl Strategy<Value = Coalescing> {
    prop_oneof![
        Just(Coalescing::Disabled),
        (1..=64_u8).prop_map(|packets| Coalescing::Static { packets }),
        (100..=100_000_u32).prop_map(|rate| Coalescing::Rbc { rate }),
        Just(Coalescing::Adapt),
        Just(Coalescing::Dense),
    ]
}

/// Longest delay by a scheme.
fn bound(scheme: Coalescing) -> Duration {
    match scheme {
        Coalescing::Disabled => Duration::ZERO,
        Coalescing::Static { .. } | Coalescing::Dense => MAX_DELAY,
        Coalescing::Rbc { rate } => Duration::from_secs(1) / rate,
        Coalescing::Adapt => ADAPT_MAX_DELAY,
    }
}

/// A guest that wants an interrupt for every frame, and a worker whose timers are exact.
struct Rig {
    start: Instant,
    now: Instant,
    moderator: Interrupts,
    /// Arrival times of frames without an interrupt so far.
    unreported: Vec<Instant>,
    deadline: Option<Instant>,
    interrupts: Vec<Instant>,
    longest: Duration,
}

impl Rig {
    fn new(scheme: Coalescing) -> Self {
        let start = Instant::now();
        Self {
            start,
            now: start,
            moderator: Interrupts::new(scheme, RING),
            unreported: Vec::new(),
            deadline: None,
            interrupts: Vec::new(),
            longest: Duration::ZERO,
        }
    }

    fn answer(&mut self, answer: Interrupt) {
        match answer {
            Interrupt::No => assert!(self.unreported.is_empty(), "a frame was forgotten"),
            Interrupt::Now => {
                for came in self.unreported.drain(..) {
                    self.longest = self.longest.max(self.now - came);
                }
                self.deadline = None;
                self.interrupts.push(self.now);
            }
            Interrupt::At(when) => {
                assert!(when > self.now, "the time has passed");
                self.deadline = Some(when);
            }
        }
    }

    /// Lets time pass; timers expire.
    fn until(&mut self, when: Instant) {
        while let Some(deadline) = self.deadline.filter(|&deadline| deadline <= when) {
            self.now = deadline;
            let answer = self.moderator.due(self.now);
            self.answer(answer);
        }
        self.now = when;
    }

    fn wait(&mut self, time: Duration) {
        self.until(self.now + time);
    }

    fn frames(&mut self, count: u32) {
        let wanted = self.unreported.is_empty();
        self.unreported.extend((0..count).map(|_| self.now));
        let answer = self.moderator.published(self.now, count, wanted);
        self.answer(answer);
    }

    /// Largest number of interrupts within a stretch of this length.
    fn busiest(&self, stretch: Duration) -> usize {
        let from = |&first: &Instant| {
            self.interrupts.iter().filter(|&&at| at >= first && at - first < stretch).count()
        };
        self.interrupts.iter().map(from).max().unwrap_or(0)
    }
}

proptest! {
    /// No frame waits longer than its scheme permits, and none is forgotten.
    #[test]
    fn every_frame_gets_its_interrupt_in_time(scheme in scheme(), traffic in vec((0..6_000_000_u64, 1..80_u32), 1..200)) {
        let mut rig = Rig::new(scheme);
        for (gap, frames) in traffic {
            rig.wait(Duration::from_nanos(gap));
            rig.frames(frames);
        }
        rig.wait(bound(scheme));
        prop_assert!(rig.unreported.is_empty());
        prop_assert!(rig.longest <= bound(scheme), "{:?}", rig.longest);
    }

    /// A new scheme takes over pending interrupts, whenever it comes.
    #[test]
    fn a_new_scheme_keeps_pending_interrupts(
        traffic in vec((0..3_000_000_u64, 1..80_u32, prop::option::weighted(0.3, scheme())), 1..100),
    ) {
        let mut rig = Rig::new(Coalescing::Static { packets: 64 });
        for (gap, frames, change) in traffic {
            rig.wait(Duration::from_nanos(gap));
            rig.frames(frames);
            if let Some(scheme) = change {
                rig.moderator.set(scheme);
                let answer = rig.moderator.due(rig.now);
                rig.answer(answer);
            }
        }
        rig.wait(Duration::from_millis(20));
        prop_assert!(rig.unreported.is_empty());
    }

    /// A single frame on an idle link.
    #[test]
    fn a_lone_frame_waits_at_most_50_us(scheme in scheme(), pauses in vec(0..100_000_000_u64, 1..50)) {
        prop_assume!(!matches!(scheme, Coalescing::Static { .. } | Coalescing::Dense));
        let mut rig = Rig::new(scheme);
        for pause in pauses {
            rig.wait(bound(scheme) + Duration::from_nanos(pause));
            rig.frames(1);
        }
        rig.wait(ADAPT_MAX_DELAY);
        prop_assert!(rig.unreported.is_empty());
        prop_assert!(rig.longest <= ADAPT_MAX_DELAY, "{:?}", rig.longest);
    }

    /// Frames closer together than half the distance of interrupts cause no more interrupts than
    /// the rate permits, however irregular they are.
    #[test]
    fn rbc_keeps_its_rate(rate in 100..=20_000_u32, gaps in vec(0.0..0.49_f64, 50..400)) {
        let mut rig = Rig::new(Coalescing::Rbc { rate });
        let interval = Duration::from_secs(1) / rate;
        for gap in gaps {
            rig.wait(interval.mul_f64(gap));
            rig.frames(1);
        }
        for stretch in [1, 5, 20] {
            prop_assert!(rig.busiest(interval * stretch + TICK) <= stretch as usize + 1);
        }
    }

    /// `static` interrupts once for exactly the given number of packets, as long as packets come.
    #[test]
    fn static_interrupts_once_per_batch(packets in 1..=64_u8, count in 1..1000_u32) {
        let mut rig = Rig::new(Coalescing::Static { packets });
        for _ in 0..count {
            rig.wait(Duration::from_nanos(100));
            rig.frames(1);
        }
        prop_assert_eq!(rig.interrupts.len() as u32, count / u32::from(packets));
    }

    /// A guest's ring is looked at while it sends, and not while it is idle.
    #[test]
    fn kicks_are_disabled_while_frames_come(packets in 1..=64_u8, looks in vec((0..10_000_000_u64, 0..300_u32), 1..200)) {
        let mut now = Instant::now();
        let mut kicks = Kicks::new(Coalescing::Static { packets }, RING);
        for (late, frames) in looks {
            now += Duration::from_nanos(late);
            kicks.found(frames);
            match kicks.emptied(now) {
                Look::Kick => prop_assert_eq!(frames, 0),
                Look::At(when) => {
                    prop_assert!(frames > 0);
                    prop_assert!(when > now && when <= now + MAX_DELAY);
                }
            }
        }
        kicks.set(Coalescing::Adapt);
        kicks.found(1);
        prop_assert_eq!(kicks.emptied(now), Look::Kick);
    }
}

proptest! {
    /// In dense mode every interrupt and every look falls on a tick, unless a batch is full, so
    /// that all share one wake-up. A guest may kick after 16 silent looks and never before.
    #[test]
    fn dense_waits_for_common_ticks(looks in vec((0..10_000_000_u64, prop_oneof![4 => Just(0), 1 => 1..20_u32]), 1..300)) {
        let origin = Instant::now();
        let is_tick = |when: Instant| when.checked_sub(TICK).map(clock::tick) == Some(when);
        let (mut kicks, mut silent) = (Kicks::new(Coalescing::Dense, RING), 0);
        let mut moderator = Interrupts::new(Coalescing::Dense, RING);
        let mut now = origin;
        for (late, frames) in looks {
            now += Duration::from_nanos(late);
            kicks.found(frames);
            silent = if frames == 0 { silent + 1 } else { 0 };
            match kicks.emptied(now) {
                Look::Kick => prop_assert!(silent >= 16),
                Look::At(when) => {
                    prop_assert!(silent < 16);
                    prop_assert!(when > now && when - now <= MAX_DELAY);
                    prop_assert!(is_tick(when) || frames > 0);
                }
            }
            match moderator.published(now, frames, true) {
                Interrupt::At(when) => prop_assert!(is_tick(when) && when - now <= MAX_DELAY),
                Interrupt::Now => {}
                Interrupt::No => prop_assert!(false, "the guest wanted an interrupt"),
            }
        }
    }
}

#[test]
fn dense_looks_at_all_request_and_response_guests_in_one_tick() {
    // All guests that send one frame per round are looked at at the same time.
    let start = clock::tick(Instant::now());
    let mut whens = std::collections::BTreeSet::new();
    for guest in 0..32 {
        let mut kicks = Kicks::new(Coalescing::Dense, RING);
        kicks.emptied(start);
        kicks.found(1);
        whens.insert(match kicks.emptied(start + Duration::from_micros(10 * (guest + 1))) {
            Look::At(when) => when,
            Look::Kick => panic!("kicks are disabled"),
        });
    }
    assert_eq!(whens.len(), 1);
}

/// Sends each frame after the answer to the one before. Returns the mean delay.
fn request_response(scheme: Coalescing, count: u32) -> (Duration, Rig) {
    let mut rig = Rig::new(scheme);
    for _ in 0..count {
        rig.wait(Duration::from_micros(20));
        rig.frames(1);
        while let Some(deadline) = rig.deadline {
            rig.until(deadline);
        }
    }
    let spent = (rig.now - rig.start).saturating_sub(Duration::from_micros(20) * count);
    (spent / count, rig)
}

#[test]
fn request_and_response_traffic_is_not_delayed_by_a_rate() {
    for scheme in [Coalescing::default(), Coalescing::Adapt, Coalescing::Disabled] {
        let (mean, _) = request_response(scheme, 100_000);
        assert!(mean < Duration::from_nanos(500), "{scheme}: {mean:?}");
    }
    // `static` always delays by its time limit.
    let (mean, _) = request_response(Coalescing::Static { packets: 2 }, 100);
    assert_eq!(mean, MAX_DELAY);
}

#[test]
fn the_rate_applies_again_after_request_and_response_traffic() {
    let (_, mut rig) = request_response(Coalescing::default(), 100_000);
    let begin = rig.now;
    for _ in 0..100_000 {
        rig.wait(Duration::from_micros(10));
        rig.frames(1);
    }
    let after = rig.interrupts.iter().filter(|&&at| at > begin).count();
    // One second at 4000 per second, and the rest of a spell without delays.
    assert!((4000..5100).contains(&after), "{after}");
}

#[test]
fn adapt_adjusts_its_batch_to_the_load() {
    for (gap_us, interrupts) in [(100, 10_000), (10, 20_000), (1, 25_000)] {
        let mut rig = Rig::new(Coalescing::Adapt);
        for _ in 0..1_000_000 / gap_us {
            rig.wait(Duration::from_micros(gap_us));
            rig.frames(1);
        }
        let sent = rig.interrupts.len() as u64;
        // The first window has no batches.
        let slack = 4000 / gap_us + interrupts / 20;
        assert!(sent.abs_diff(interrupts) <= slack, "{gap_us} us: {sent}");
    }
}

#[test]
fn an_interrupt_is_never_held_back_for_half_a_ring() {
    for scheme in [Coalescing::Rbc { rate: 100 }, Coalescing::Static { packets: 64 }] {
        let mut moderator = Interrupts::new(scheme, 64);
        let now = Instant::now();
        moderator.published(now, 1, true);
        moderator.release(now);
        assert!(matches!(moderator.published(now, 31, true), Interrupt::At(_)));
        assert_eq!(moderator.published(now, 1, false), Interrupt::Now);
        assert_eq!(moderator.due(now), Interrupt::No);
    }
}

#[test]
fn a_polling_guest_is_neither_interrupted_nor_counted() {
    let now = Instant::now();
    let mut moderator = Interrupts::new(Coalescing::Static { packets: 2 }, RING);
    assert_eq!(moderator.published(now, 100, false), Interrupt::No);
    assert!(matches!(moderator.published(now, 1, true), Interrupt::At(_)));
    assert!(moderator.release(now));
    assert!(!moderator.release(now));
}

#[test]
fn static_interrupts_a_guest_with_an_empty_ring_at_once() {
    let now = Instant::now();
    for (scheme, told) in [(Coalescing::Static { packets: 64 }, true), (Coalescing::Adapt, false)] {
        let mut moderator = Interrupts::new(scheme, RING);
        for at in 0..10_000 {
            moderator.published(now + Duration::from_micros(at), 1, false);
        }
        moderator.published(now + Duration::from_millis(10), 1, true);
        assert_eq!(moderator.idle(now + Duration::from_millis(10)), told);
    }
}
