//! The device end of a packed ring dies and another one takes over: every chain is returned once,
//! in order.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use super::BURST;
use super::chain::{Chain, Chains, Fetch, QueueKind};
use super::packed::PackedRing;
use super::tests::words;
use crate::driver::{QueueLayout, Ram, Ring};
use crate::fault::QueueError;
use crate::features::{EVENT_IDX, INDIRECT_DESC, RING_PACKED, VERSION_1};
use crate::ring::packed::Position;
use crate::ring::{Part, PositionLog, QueueConfig, Start};

const FEATURES: u64 = VERSION_1 | RING_PACKED | EVENT_IDX | INDIRECT_DESC;
const LEN: u32 = 100;

/// A driver, and the current device end.
struct Scene {
    ram: Ram,
    driver: Ring,
    layout: QueueLayout,
    kind: QueueKind,
    log: PositionLog,
    device: PackedRing,
    chains: Chains,
    fetched: VecDeque<Chain>,
    /// Heads that the driver made available and that were not returned yet.
    given: VecDeque<u16>,
    /// Position behind what this device end has published, and behind what it has returned.
    shown: Position,
    returned: Position,
}

impl Scene {
    fn new(size: u16, kind: QueueKind) -> Self {
        let mut ram = Ram::new(1 << 20).unwrap();
        let layout = QueueLayout::allocate(&mut ram, size).unwrap();
        let log = PositionLog::new(&words(), 7).unwrap();
        let driver = Ring::new(ram.memory(), layout, FEATURES).unwrap();
        let config =
            QueueConfig { log: Some(log.clone()), ..layout.config(FEATURES, Start::first(FEATURES)) };
        let device = PackedRing::new(ram.memory(), &config, kind).unwrap();
        let chains = Chains::new(ram.memory(), kind, true, 64);
        Self {
            ram,
            driver,
            layout,
            kind,
            log,
            device,
            chains,
            fetched: VecDeque::new(),
            given: VecDeque::new(),
            shown: Position::START,
            returned: Position::START,
        }
    }

    fn give(&mut self, parts: usize, table: bool) {
        let writable = self.kind == QueueKind::Receive;
        let part = Part { addr: Ram::START + 0x8_0000, len: LEN, writable };
        let parts = vec![part; parts];
        let head = if table {
            let at = self.ram.allocate(256, 16).expect("memory");
            self.driver.add_indirect(&Arc::clone(self.ram.memory()), at, &parts)
        } else {
            self.driver.add(parts.into_iter())
        };
        self.given.extend(head);
        self.driver.publish();
    }

    /// The device fetches everything available: exactly what it has not published as used.
    fn fetch(&mut self) {
        let mut out = [Chain::default(); BURST];
        let count =
            self.device.fetch(Fetch { chains: &mut self.chains, out: &mut out, parts: 1 << 20 }).unwrap();
        self.fetched.extend(&out[..count]);
    }

    fn give_back(&mut self, count: usize, written: u32) {
        for chain in self.fetched.drain(..count.min(self.fetched.len())) {
            self.device.push_used(std::iter::once((chain, written.min(chain.len))));
            self.returned = self.returned.advance(chain.descriptors, self.layout.size);
        }
    }

    fn publish(&mut self) {
        self.device.publish();
        self.shown = self.returned;
        assert_eq!(self.device.position(), self.shown.to_bits());
    }

    /// The driver takes back used chains: in order, and no more than were published.
    fn take_back(&mut self) {
        while let Some(used) = self.driver.poll_used().unwrap() {
            assert_eq!(Some(used.head), self.given.pop_front());
        }
    }

    fn recover(&mut self) -> Result<(), QueueError> {
        let config =
            QueueConfig { log: Some(self.log.clone()), ..self.layout.config(FEATURES, Start::Recover) };
        self.device = PackedRing::new(self.ram.memory(), &config, self.kind)?;
        self.fetched.clear();
        self.chains.abandon(0);
        assert_eq!(self.device.position(), self.shown.to_bits());
        self.returned = self.shown;
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Step {
    Give {
        parts: usize,
        table: bool,
    },
    Fetch,
    GiveBack(usize, u32),
    Publish,
    TakeBack,
    /// The device dies before anything of a batch is visible, with or without the batch in the log.
    Die {
        logged: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..5usize, any::<bool>()).prop_map(|(parts, table)| Step::Give { parts, table }),
        3 => Just(Step::Fetch),
        3 => (1..6usize, 1..=LEN).prop_map(|(count, written)| Step::GiveBack(count, written)),
        2 => Just(Step::Publish),
        2 => Just(Step::TakeBack),
        1 => any::<bool>().prop_map(|logged| Step::Die { logged }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_chain_is_returned_once_whenever_a_device_end_dies(
        size in 5..20u16,
        receive: bool,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let kind = if receive { QueueKind::Receive } else { QueueKind::Transmit(1 << 16) };
        let mut scene = Scene::new(size, kind);
        for step in steps {
            match step {
                // A receive chain of several buffers cannot be restored: see the test below.
                Step::Give { .. } if receive => scene.give(1, false),
                Step::Give { parts, table } => scene.give(parts, table),
                Step::Fetch => scene.fetch(),
                Step::GiveBack(count, written) => scene.give_back(count, written),
                Step::Publish => scene.publish(),
                Step::TakeBack => scene.take_back(),
                Step::Die { logged } => {
                    if logged && scene.returned != scene.shown {
                        scene.log.store(scene.shown, scene.returned);
                    }
                    scene.recover().unwrap();
                }
            }
        }
        scene.recover().unwrap();
        while !scene.given.is_empty() {
            let before = scene.given.len();
            scene.fetch();
            scene.give_back(usize::MAX, 1);
            scene.publish();
            scene.take_back();
            prop_assert!(scene.given.len() < before, "stuck with {} chains", before);
        }
        prop_assert_eq!(scene.driver.free(), usize::from(size));
    }
}

#[test]
fn a_half_returned_receive_chain_of_several_buffers_is_an_error() {
    let mut scene = Scene::new(8, QueueKind::Receive);
    scene.give(1, false);
    scene.give(2, false);
    scene.fetch();
    scene.give_back(2, 60);
    assert_eq!(scene.recover(), Err(QueueError::Torn { index: 1 }));
}
