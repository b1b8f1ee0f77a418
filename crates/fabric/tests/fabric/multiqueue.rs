//! Guests with several queue pairs.

use std::time::Instant;

use taut_api::fabric::PortId;
use taut_api::fabric::config::{PortConfig, PortKind, WorkerConfig, WorkerMode};
use taut_api::link::Link;
use taut_virtq::driver::{QueueLayout, RxDriver, TxDriver};
use taut_virtq::{NetHeader, features};
use vhost::vhost_user::message::FrontendReq;

use super::fabric::{Fabric, PATIENCE, mac, vnic};
use super::frames::udp;
use super::guest::{Events, FrontEnd, Guest, LINUX, Model, drain};

const PAIRS: usize = 4;
const FLOWS: u16 = 40;

/// A queue pair other than the first.
struct Pair {
    rx: RxDriver,
    tx: TxDriver,
    layouts: [QueueLayout; 2],
    events: [Events; 2],
}

impl Pair {
    /// Starts both rings of a pair.
    fn start(guest: &mut Guest, pair: usize, model: Model) -> Self {
        let layouts = [0; 2].map(|_| QueueLayout::allocate(&mut guest.ram, model.queue_size).unwrap());
        let mut rx =
            RxDriver::new(&mut guest.ram, layouts[0], model.features, model.rx_buffer).unwrap().unwrap();
        let tx = TxDriver::new(&mut guest.ram, layouts[1], model.features, 4096).unwrap().unwrap();
        rx.ring().publish();
        let events = [0; 2].map(|_| Events::new());
        for queue in 0..2 {
            let index = (2 * pair + queue) as u32;
            guest.front_end.set_up_ring(index, layouts[queue], 0, &events[queue]);
        }
        Self { rx, tx, layouts, events }
    }

    /// Waits until the device has returned all frames of the transmit ring.
    fn drain(&mut self) {
        drain(&mut self.tx, self.layouts[1], &self.events[1]);
    }
}

/// Starts a sender on port 0, and a guest with all its pairs on port 1.
fn start(fabric: &mut Fabric) -> (Guest, Guest, Vec<Pair>) {
    let cpus = vec![0; 2];
    let workers = WorkerConfig { mode: WorkerMode::Adaptive { poll_us: 10 }, cpus, near: Vec::new() };
    let kind = PortKind::VhostUser { offloads: true, queue_pairs: PAIRS as u8 };
    fabric.configure_with(vec![vnic(0, 1), PortConfig { kind, ..vnic(1, 1) }], workers);
    let sender = Guest::start(fabric.connect(PortId(0)), Model::default());
    let model = Model { features: LINUX | features::NET_MQ, ..Model::default() };
    let mut guest = Guest::start(fabric.connect(PortId(1)), model);
    assert_eq!(guest.front_end.ask(FrontendReq::GET_QUEUE_NUM), 2 * PAIRS as u64);
    let pairs = (1..PAIRS).map(|pair| Pair::start(&mut guest, pair, model)).collect();
    fabric.until_link(PortId(0), Link::Up);
    fabric.until_link(PortId(1), Link::Up);
    (sender, guest, pairs)
}

/// Receives `count` frames on any queue. Returns the queue, flow and number of each, in the order
/// of each queue.
fn receive(guest: &mut Guest, pairs: &mut [Pair], count: usize) -> Vec<(usize, u16, u32)> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count} frames arrived", got.len());
        let queues = std::iter::once(&mut guest.rx).chain(pairs.iter_mut().map(|pair| &mut pair.rx));
        for (queue, rx) in queues.enumerate() {
            let mut frame = Vec::new();
            while rx.receive(&mut frame).unwrap().is_some() {
                let flow = u16::from_be_bytes(frame[34..36].try_into().unwrap());
                got.push((queue, flow, u32::from_be_bytes(frame[42..46].try_into().unwrap())));
                frame.clear();
            }
            rx.ring().publish();
        }
    }
    got
}

/// Sends three rounds of frames of all flows, and returns their number.
fn send_flows(sender: &mut Guest) -> usize {
    for number in 0..3 {
        for flow in 0..FLOWS {
            sender.send(&udp(mac(1), mac(0), flow, number));
        }
    }
    3 * usize::from(FLOWS)
}

fn enable(guest: &mut Guest, pair: u32, on: u32) {
    for queue in [2 * pair, 2 * pair + 1] {
        guest.front_end.tell(FrontendReq::SET_VRING_ENABLE, &FrontEnd::state(queue, on), &[]);
    }
}

/// The queue of each flow. Asserts that its frames came on that queue only, and in order.
fn queue_of_flows(got: &[(usize, u16, u32)]) -> Vec<usize> {
    let queue_of = |flow: u16| {
        let mine: Vec<_> = got.iter().filter(|frame| frame.1 == flow).collect();
        let numbers: Vec<_> = mine.iter().map(|frame| frame.2).collect();
        assert_eq!(numbers, [0, 1, 2], "flow {flow}");
        assert!(mine.iter().all(|frame| frame.0 == mine[0].0), "flow {flow} came on several queues");
        mine[0].0
    };
    (0..FLOWS).map(queue_of).collect()
}

#[test]
fn flows_spread_over_the_enabled_queues_and_each_stays_in_order() {
    let mut fabric = Fabric::start();
    let (mut sender, mut guest, mut pairs) = start(&mut fabric);
    let count = send_flows(&mut sender);
    let with_all = queue_of_flows(&receive(&mut guest, &mut pairs, count));
    for queue in 0..PAIRS {
        assert!(with_all.contains(&queue), "nothing came on queue {queue}");
    }
    // The guest uses fewer queues (`ethtool -L`): the others get nothing.
    enable(&mut guest, 2, 0);
    enable(&mut guest, 3, 0);
    assert_eq!(fabric.counters(PortId(1)).rx_queues, 2);
    let count = send_flows(&mut sender);
    let with_two = queue_of_flows(&receive(&mut guest, &mut pairs, count));
    assert!(with_two.contains(&0) && with_two.contains(&1) && with_two.iter().all(|&queue| queue < 2));
    enable(&mut guest, 1, 0);
    let count = send_flows(&mut sender);
    let with_one = queue_of_flows(&receive(&mut guest, &mut pairs, count));
    assert!(with_one.iter().all(|&queue| queue == 0));
    // The guest uses all queues again: flows return to the same queues.
    for pair in 1..PAIRS as u32 {
        enable(&mut guest, pair, 1);
    }
    // The worker's flow cache is valid for a moment longer.
    let spread = (0..FLOWS).find(|&flow| with_all[usize::from(flow)] != 0).unwrap();
    let mut more = 0;
    let mut queue = 0;
    while queue != with_all[usize::from(spread)] {
        sender.send(&udp(mac(1), mac(0), spread, 0));
        queue = receive(&mut guest, &mut pairs, 1)[0].0;
        more += 1;
    }
    let count = send_flows(&mut sender);
    assert_eq!(queue_of_flows(&receive(&mut guest, &mut pairs, count)), with_all);
    sender.drain();
    let counters = fabric.counters(PortId(1));
    assert_eq!(counters.rx_frames, (4 * count + more) as u64);
    assert!(counters.rx_drops.is_empty());
}

#[test]
fn every_pair_sends_and_a_pair_that_is_no_longer_used_is_drained() {
    let mut fabric = Fabric::start();
    let (mut other, mut guest, mut pairs) = start(&mut fabric);
    let mut sent = Vec::new();
    for (number, pair) in (0..).zip(&mut pairs) {
        let frame = udp(mac(0), mac(1), 7, number);
        assert!(pair.tx.send(&NetHeader::default(), &frame));
        // Without a kick, because the guest stops using the queue at once.
        pair.tx.ring().publish();
        sent.push(frame);
    }
    for pair in 1..PAIRS as u32 {
        enable(&mut guest, pair, 0);
    }
    let mut got: Vec<_> = sent.iter().map(|_| other.receive().1).collect();
    got.sort();
    assert_eq!(got, sent);
    guest.send(&udp(mac(0), mac(1), 7, 99));
    assert_eq!(other.receive().1, udp(mac(0), mac(1), 7, 99));
    guest.drain();
    // Each pair may belong to another worker, which returns the frame after it has delivered it.
    for pair in &mut pairs {
        pair.drain();
    }
    assert_eq!(fabric.counters(PortId(1)).tx_frames, PAIRS as u64);
}
