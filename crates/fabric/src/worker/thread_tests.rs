//! Tests of a worker's rounds: the real ones, over real rings.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rustix::event::{EventfdFlags, eventfd};
use taut_api::MacAddr;
use taut_api::fabric::config::{PortConfig, PortKind, SegmentId};
use taut_api::fabric::counters::PortWord;
use taut_api::fabric::{ForeignFd, PortId};
use taut_api::units::BitRate;
use taut_virtq::driver::{QueueLayout, Ram, TxDriver};
use taut_virtq::header::NetHeader;
use taut_virtq::{Start, features};

use super::super::crew::Moving;
use super::*;
use crate::net::queue::{PairIdx, QueueIdx};
use crate::port::Port;
use crate::port::reservation::Budget;
use crate::switch::Switch;
use crate::sys::counters::{PortBlock, empty_words};
use crate::sys::epoll::Waker;
use crate::vhost_user::device::{Ring, RingSetup};
use crate::wake::mailbox::Mailboxes;

/// Guests that flood.
const FLOODS: u16 = 200;
/// The guest with a reservation.
const OWN: u16 = FLOODS;

/// Guests that always have frames for all of them, and a worker that serves them. No guest has a
/// receive ring: each frame is dropped at 200 receivers, which takes so long that bursts end by
/// their time.
struct Rig {
    worker: Worker,
    ports: Vec<Arc<Port>>,
    drivers: Vec<TxDriver>,
    frames: Vec<Vec<u8>>,
    now: Instant,
}

/// Sources that a call of [`Worker::round`] has served.
#[derive(Debug, PartialEq, Eq)]
struct Served {
    floods: Vec<u16>,
    own: bool,
}

impl Rig {
    fn new(rate: BitRate) -> Self {
        let words = empty_words();
        let mailboxes = Arc::new(Mailboxes::new().unwrap());
        let kind = PortKind::VhostUser { offloads: false, queue_pairs: 1 };
        let mac = |id: u16| MacAddr([2, 0, 0, 0, 0, id as u8]);
        let configs: Vec<_> = (0..=OWN)
            .map(|id| PortConfig::new(PortId(id), String::new(), kind, SegmentId(1), mac(id)))
            .collect();
        let port = |config: &PortConfig| {
            Arc::new(Port::new(config.id, config.kind, PortBlock::new(&words, config.id)))
        };
        let ports: Vec<_> = configs.iter().map(port).collect();
        let drivers = ports.iter().map(|port| {
            let mut ram = Ram::new(1 << 18).unwrap();
            let layout = QueueLayout::allocate(&mut ram, 256).unwrap();
            let driver = TxDriver::new(&mut ram, layout, features::VERSION_1, 128).unwrap().unwrap();
            let event = || ForeignFd::own(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
            let config = layout.config(features::VERSION_1, Start::At(0));
            let setup = RingSetup { memory: Arc::clone(ram.memory()), config };
            let ring = Ring { setup, kick: Arc::new(event()), call: Some(Arc::new(event().into())) };
            port.start_ring(QueueIdx::transmit(PairIdx::FIRST), ring, &mailboxes).unwrap();
            driver
        });
        let drivers = drivers.collect();
        let begin = Instant::now();
        ports[usize::from(OWN)].reserve(Some(Budget::new(rate, begin)), None);
        let switch =
            Switch::new(configs.iter().zip(&ports), &BTreeMap::new(), &BTreeMap::new(), &Switch::default());
        let crew = Crew {
            mailboxes,
            plan: Mutex::new(Arc::new(Plan::new(switch, WorkerMode::Polling, vec![Vec::new()]))),
            moving: Mutex::new(Moving { workers: 1, last: None }),
            incidents: Mutex::default(),
            unbound: Mutex::default(),
            alarm: Waker::new().unwrap(),
        };
        let mut worker = Worker::new(Arc::new(crew), WorkerIdx(0), WorkerBlock::new(&words, 0));
        worker.take_up_plan();
        let frame = |id: u16| {
            let mut frame = [&MacAddr::BROADCAST.0[..], &mac(id).0, &[0x88, 0xb5]].concat();
            frame.resize(60, 7);
            frame
        };
        let mut rig = Self { worker, ports, drivers, frames: (0..=OWN).map(frame).collect(), now: begin };
        (0..=OWN).for_each(|id| rig.refill(id));
        rig
    }

    fn refill(&mut self, id: u16) {
        let driver = &mut self.drivers[usize::from(id)];
        driver.reclaim().unwrap();
        while driver.send(&NetHeader::default(), &self.frames[usize::from(id)]) {}
        driver.ring().publish();
    }

    fn sent(&self, id: u16, word: PortWord) -> u64 {
        self.ports[usize::from(id)].counters.get(word)
    }

    /// Lets the worker go on with its round, until that pauses or ends.
    fn go_on(&mut self) -> Served {
        let before: Vec<_> = (0..=OWN).map(|id| self.sent(id, PortWord::TxFrames)).collect();
        let (frames, end) = self.worker.round(self.now);
        assert!(frames, "all have frames");
        self.now = end;
        let has_sent = |id: &u16| self.sent(*id, PortWord::TxFrames) > before[usize::from(*id)];
        let served: Vec<_> = (0..=OWN).filter(has_sent).collect();
        for id in &served {
            self.refill(*id);
        }
        Served { own: served.contains(&OWN), floods: served.into_iter().filter(|id| *id != OWN).collect() }
    }
}

#[test]
fn a_reserved_source_beside_200_floods_waits_for_a_burst_and_the_others_keep_their_places() {
    // More than it can send, so it is always behind.
    let mut rig = Rig::new(BitRate(100_000_000_000));
    for round in 0..3 {
        for flood in 0..FLOODS {
            // A round begins with the place of its first source.
            let expected = Served { floods: vec![flood], own: flood > 0 };
            assert_eq!(rig.go_on(), expected, "round {round}");
        }
        assert_eq!(rig.go_on(), Served { floods: Vec::new(), own: true }, "its own place in round {round}");
    }
}

#[test]
fn a_reserved_source_beside_200_floods_gets_what_it_has_reserved_and_hardly_more() {
    let mut rig = Rig::new(BitRate(100_000_000_000));
    let own = usize::from(OWN);
    let bytes = |rig: &Rig| rig.sent(OWN, PortWord::TxBytes);
    (0..50).for_each(|_| drop(rig.go_on()));
    let burst = bytes(&rig) / 49;

    // A burst in five pauses, which are no shorter than their time.
    let ns = 5 * PAUSE_AFTER.as_nanos() as u64;
    let rate = BitRate(burst * 8 * 1_000_000_000 / ns);
    rig.ports[own].reserve(Some(Budget::new(rate, rig.now)), None);
    let (before, calls) = (bytes(&rig), 1000_u64);
    (0..calls).for_each(|_| drop(rig.go_on()));
    let (sent, reserved) = (bytes(&rig) - before, burst * (calls / 5));
    assert!(sent + burst >= reserved, "{sent} bytes of {reserved}");

    // The smallest reservation gives precedence to a burst in 100 ms.
    rig.ports[own].reserve(Some(Budget::new(BitRate(1), rig.now)), None);
    let begin = rig.now;
    let came_first = |served: &Served| served.own && !served.floods.is_empty();
    let first = (0..calls).filter(|_| came_first(&rig.go_on())).count();
    let most = (rig.now - begin).as_millis() / 100 + 2;
    assert!(first as u128 <= most, "{first} times in {:?}", rig.now - begin);
}
