//! A device end is killed between any two stores and another one takes over: every packet is
//! returned once, in order as far as the order is known.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::prelude::*;

use super::tests::in_flight;
use super::{InFlight, Packet, RING_FEATURES, SocketTx};
use crate::driver::{QueueLayout, Ram, Ring};
use crate::ring::{Part, QueueConfig, Start};
use crate::socket_header::{LEN, SocketHeader};

thread_local! {
    /// Number of moments until this thread's device end is killed.
    static MOMENTS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Payload of the panic that stands for a kill.
struct Killed;

/// Marks a moment at which a process may be killed: before and after each store.
pub(super) fn moment() {
    match MOMENTS.get() {
        None => {}
        Some(0) => {
            MOMENTS.set(None);
            resume_unwind(Box::new(Killed));
        }
        Some(left) => MOMENTS.set(Some(left - 1)),
    }
}

/// Runs an action of a device end; `None` if the device end was killed during it.
fn mortal<T>(action: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(action)) {
        Ok(done) => Some(done),
        Err(cause) if cause.is::<Killed>() => None,
        Err(cause) => resume_unwind(cause),
    }
}

/// Payload of a packet in bytes.
const PAYLOAD: u32 = 100;
/// Room for a packet and its indirect table, in bytes.
const ROOM: u64 = 256;

/// A driver, and the current device end.
struct Scene {
    ram: Ram,
    driver: Ring,
    layout: QueueLayout,
    log: InFlight,
    device: Option<SocketTx>,
    /// Free places for packets.
    free: Vec<u64>,
    /// Number and place of each packet that the driver sent and that was not returned yet, by head.
    given: BTreeMap<u16, (u16, u64)>,
    /// Number of the next packet: its position in the available ring.
    next: u16,
    /// Heads that [`SocketTx::take`] must return, in groups. Within a group any order is correct.
    expected: VecDeque<BTreeSet<u16>>,
    /// Heads that the device has taken and not given back, in this order.
    taken: Vec<u16>,
    /// Number of entries that were taken; uncertain by one after a kill.
    position: u16,
}

impl Scene {
    fn new(size: u16, features: u64) -> Self {
        let mut ram = Ram::new(1 << 20).unwrap();
        let layout = QueueLayout::allocate(&mut ram, size).unwrap();
        let driver = Ring::new(ram.memory(), layout, features).unwrap();
        let free = (0..size).map(|_| ram.allocate(ROOM, 64).unwrap()).collect();
        let log = in_flight();
        let config = layout.config(RING_FEATURES, Start::At(0));
        let device = SocketTx::new(ram.memory(), &config, log.clone()).unwrap();
        let (given, expected, taken) = (BTreeMap::new(), VecDeque::new(), Vec::new());
        let device = Some(device);
        Self { ram, driver, layout, log, device, free, given, next: 0, expected, taken, position: 0 }
    }

    fn device(&mut self) -> &mut SocketTx {
        self.device.as_mut().expect("it lives")
    }

    /// The driver sends a packet that contains its number, in `parts` parts.
    fn give(&mut self, parts: u32, table: bool) {
        let Some(place) = self.free.pop() else { return };
        let header =
            SocketHeader { src_port: self.next.into(), len: PAYLOAD, ..SocketHeader::default() }.to_bytes();
        self.ram.memory().write(place, &header).unwrap();
        let len = LEN as u32 + PAYLOAD;
        let cuts = (0..parts).map(|part| {
            let [from, to] = [part, part + 1].map(|part| part * len / parts);
            Part { addr: place + u64::from(from), len: to - from, writable: false }
        });
        let cuts: Vec<Part> = cuts.collect();
        let head = if table {
            self.driver.add_indirect(self.ram.memory(), place + 160, &cuts)
        } else {
            self.driver.add(cuts.into_iter())
        };
        let Some(head) = head else { return self.free.push(place) };
        self.driver.publish();
        self.given.insert(head, (self.next, place));
        self.expected.push_back(BTreeSet::from([head]));
        self.next = self.next.wrapping_add(1);
    }

    /// The driver takes back used packets. No unknown head may be among them.
    fn take_back(&mut self) {
        while let Some(used) = self.driver.poll_used().unwrap() {
            let (_, place) = self.given.remove(&used.head).expect("given");
            self.free.push(place);
        }
    }

    fn take(&mut self) {
        let device = self.device.as_mut().expect("it lives");
        let Some(packet) = mortal(|| device.take().unwrap()) else { return self.killed() };
        let Some(Packet { head, header, payload }) = packet else {
            assert!(self.expected.is_empty(), "still with the device: {:?}", self.expected);
            return;
        };
        let first = self.expected.front_mut().expect("as many as there are");
        assert!(first.remove(&head), "{head} taken, one of {first:?} expected");
        if first.is_empty() {
            self.expected.pop_front();
        }
        let (number, _) = self.given[&head];
        assert_eq!((header.src_port, header.len, payload), (number.into(), PAYLOAD, PAYLOAD));
        self.taken.push(head);
        assert!(self.device().taken().eq(self.taken.clone()));
        self.position = self.device().position();
    }

    fn give_back(&mut self, which: usize) {
        if !self.taken.is_empty() {
            let last = self.taken.len() - 1;
            let head = self.taken.remove(if which == usize::MAX { last } else { which % (last + 1) });
            let device = self.device.as_mut().expect("it lives");
            if mortal(|| device.give_back(head)).is_none() {
                self.killed();
            }
        }
    }

    fn publish(&mut self) {
        let device = self.device.as_mut().expect("it lives");
        if mortal(|| device.publish()).is_none() {
            self.killed();
        }
    }

    /// The device end stops in good order, and the next one takes over.
    fn hand_over(&mut self, start_at: bool) {
        let device = self.device.as_mut().expect("it lives");
        if mortal(|| device.hand_over()).is_none() {
            return self.killed();
        }
        let position = self.device().position();
        assert_eq!(position, self.position);
        for head in std::mem::take(&mut self.taken).into_iter().rev() {
            self.expected.push_front(BTreeSet::from([head]));
        }
        let start = if start_at { Start::At(position) } else { Start::Recover };
        if self.go_on(start).is_none() {
            // The killed device end knew the order. It is still logged unless another order was
            // begun.
            self.killed();
        }
        assert_eq!(self.device().position(), self.position);
    }

    /// The device end was killed. Its successors may be killed as well.
    fn killed(&mut self) {
        self.take_back();
        while self.go_on(Start::Recover).is_none() {}
        // The kill may have come before or after the head was logged.
        let position = self.device().position();
        assert!(position.wrapping_sub(self.position) <= 1, "{position} instead of {}", self.position);
        self.position = position;
        self.taken.clear();
        self.expected.clear();
        // The driver has overwritten older entries.
        let known = |number: u16| self.next.wrapping_sub(number) <= self.layout.size;
        let mut heads: Vec<(u16, u16)> =
            self.given.iter().map(|(&head, &(number, _))| (number, head)).collect();
        heads.sort_by_key(|&(number, _)| std::cmp::Reverse(self.next.wrapping_sub(number)));
        let unknown: BTreeSet<u16> =
            heads.iter().filter(|(number, _)| !known(*number)).map(|&(_, head)| head).collect();
        if !unknown.is_empty() {
            self.expected.push_back(unknown);
        }
        let rest = heads.iter().filter(|(number, _)| known(*number));
        self.expected.extend(rest.map(|&(_, head)| BTreeSet::from([head])));
    }

    /// Starts another device end on the same queue; `None` if it is killed during the start.
    fn go_on(&mut self, start: Start) -> Option<()> {
        let config = QueueConfig { start, ..self.layout.config(RING_FEATURES, start) };
        self.device = None;
        let device = mortal(|| SocketTx::new(self.ram.memory(), &config, self.log.clone()).unwrap());
        self.device = Some(device?);
        Some(())
    }

    /// Checks that everything that is with the device comes back, and nothing else.
    fn finish(&mut self) {
        self.take_back();
        while !self.given.is_empty() {
            let before = self.given.len();
            self.take();
            self.give_back(0);
            self.publish();
            self.take_back();
            assert!(self.given.len() < before, "stuck with {before} packets");
        }
        assert_eq!(self.driver.free(), usize::from(self.layout.size));
        assert_eq!(self.device().take(), Ok(None));
        assert_eq!(self.device().position(), self.next);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Give {
        parts: u32,
        table: bool,
    },
    Take,
    GiveBack(usize),
    Publish,
    TakeBack,
    HandOver {
        start_at: bool,
    },
    /// Kills the device end this many moments later.
    Die(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..4u32, any::<bool>()).prop_map(|(parts, table)| Step::Give { parts, table }),
        8 => Just(Step::Take),
        4 => any::<usize>().prop_map(Step::GiveBack),
        // The packet that came last. Others stay in flight for long.
        4 => Just(Step::GiveBack(usize::MAX)),
        4 => Just(Step::Publish),
        6 => Just(Step::TakeBack),
        1 => any::<bool>().prop_map(|start_at| Step::HandOver { start_at }),
        3 => (0..20usize).prop_map(Step::Die),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_packet_is_returned_once_whenever_a_device_end_is_killed(
        size in (1..5u32).prop_map(|shift| 1 << shift),
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        MOMENTS.set(None);
        let mut scene = Scene::new(size, RING_FEATURES);
        for step in steps {
            match step {
                Step::Give { parts, table } => scene.give(parts, table),
                Step::Take => scene.take(),
                Step::GiveBack(which) => scene.give_back(which),
                Step::Publish => scene.publish(),
                Step::TakeBack => scene.take_back(),
                Step::HandOver { start_at } => scene.hand_over(start_at),
                Step::Die(moments) => MOMENTS.set(Some(moments)),
            }
        }
        MOMENTS.set(None);
        scene.killed();
        scene.finish();
    }
}

/// Kills at every moment of a publication, and at every moment of the recovery from it.
#[test]
fn a_kill_at_any_moment_of_a_publication_loses_nothing() {
    let mut killed = 0;
    for first in 0..100 {
        for second in 0..100 {
            let mut scene = Scene::new(8, RING_FEATURES);
            (0..8).for_each(|_| scene.give(1, false));
            (0..6).for_each(|_| scene.take());
            for which in [5, 1, 2] {
                scene.give_back(which);
            }
            MOMENTS.set(Some(first));
            let device = scene.device.as_mut().unwrap();
            let done = mortal(|| device.publish()).is_some();
            MOMENTS.set(Some(second));
            let recovered = scene.go_on(Start::Recover).is_some();
            MOMENTS.set(None);
            scene.killed();
            scene.finish();
            killed += usize::from(!done);
            if recovered {
                break;
            }
        }
    }
    // Two stores around three bits, each with a moment before and after, and recoveries from each.
    assert!(killed > 10, "{killed}");
}

/// One packet stays in flight while the index wraps around.
#[test]
fn a_packet_may_stay_in_flight_while_the_index_wraps_around() {
    let mut scene = Scene::new(4, RING_FEATURES);
    scene.give(1, false);
    scene.take();
    for round in 0..70_000 {
        scene.give(1, false);
        scene.take();
        scene.give_back(1);
        if round % 1000 == 0 {
            scene.hand_over(round % 2000 == 0);
            scene.take();
            scene.take();
            scene.give_back(1);
        }
        if round % 997 == 0 {
            scene.killed();
            // A packet that was given back has been returned, or is taken again.
            while scene.taken.len() < scene.given.len() {
                scene.take();
            }
            while scene.taken.len() > 1 {
                scene.give_back(1);
            }
        }
        scene.publish();
        scene.take_back();
    }
    scene.finish();
}

/// Two packets no longer have an entry in the available ring, and their heads do not tell their
/// order.
#[test]
fn a_handover_keeps_the_order() {
    for start_at in [false, true] {
        let mut scene = Scene::new(4, RING_FEATURES);
        (0..2).for_each(|_| scene.give(1, false));
        (0..2).for_each(|_| scene.take());
        let older = scene.taken[1];
        for round in 0..10 {
            scene.give_back(if round == 0 { 0 } else { 2 });
            scene.publish();
            scene.take_back();
            scene.give(1, false);
            scene.take();
            if round == 0 {
                scene.give(1, false);
                scene.take();
            }
        }
        assert!(scene.taken[0] == older && scene.taken[1] < older, "{:?}", scene.taken);
        scene.hand_over(start_at);
        // A successor only starts, or takes some packets and is killed.
        scene.go_on(Start::Recover).unwrap();
        assert_eq!(scene.device().position(), scene.position);
        assert!(scene.device().take().is_ok_and(|packet| packet.is_some()));
        scene.go_on(Start::Recover).unwrap();
        assert_eq!(scene.expected.len(), 3);
        (0..3).for_each(|_| scene.take());
        scene.finish();
    }
}

#[test]
fn another_start_clears_the_packets_in_flight() {
    let mut scene = Scene::new(4, RING_FEATURES);
    scene.give(1, false);
    scene.take();
    let log = scene.log.clone();
    // The guest has restarted the device.
    let mut fresh = Scene::new(4, RING_FEATURES);
    fresh.log = log.clone();
    fresh.go_on(Start::At(0)).unwrap();
    fresh.give(1, false);
    fresh.take();
    fresh.give_back(0);
    fresh.publish();
    fresh.finish();
    // The same, but with a start that claims that the ring continues.
    scene.give(1, false);
    scene.log.clear();
    scene.go_on(Start::Recover).unwrap();
    assert_eq!(scene.device().position(), 0, "nothing was returned");
}

#[test]
fn heads_of_a_larger_ring_are_dropped() {
    let mut large = Scene::new(16, RING_FEATURES);
    (0..16).for_each(|_| large.give(1, false));
    (0..16).for_each(|_| large.take());
    let mut small = Scene::new(4, RING_FEATURES);
    small.log = large.log.clone();
    small.go_on(Start::Recover).unwrap();
    assert_eq!(small.device().position(), 4);
    assert_eq!(small.log.recover_count(), 4, "the others are gone");
}

impl InFlight {
    fn recover_count(&self) -> u32 {
        (0..super::MAX_SIZE).map(|head| u32::from(self.contains(head))).sum()
    }
}
