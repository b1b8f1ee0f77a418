//! Tests of runs to a packet socket, for which a pair of local sockets stands: what the other one
//! receives, and what a full socket or a refused frame leaves behind.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use taut_api::fabric::config::{PortConfig, PortKind, SegmentId};
use taut_api::fabric::counters::{PORT_WORDS, PortCounters, port_base};
use taut_api::fabric::message::{PacketRing, PacketSocket};
use taut_api::fabric::{DropReason, ForeignFd};
use taut_api::network_io::TrafficClass;
use taut_api::{MacAddr, Vlan};
use taut_virtq::counters::SharedWords;
use taut_virtq::device::{BURST, TxQueue};
use taut_virtq::driver::{QueueLayout, Ram, TxDriver};
use taut_virtq::header::NetHeader;
use taut_virtq::{Start, features};

use super::*;
use crate::net::vlan::tagged;
use crate::port::network_io::NetworkIoSetup;
use crate::port::{Port, RxEnd, packet};
use crate::switch::Switch;
use crate::switch::outside::Outside;
use crate::sys::counters::{PortBlock, empty_words};
use crate::wake::timers::Timers;

const FEATURES: u64 = features::VERSION_1;
/// The fields of a virtio-net header before the frame, all of which are 0 in plain frames.
const HEADER: [u8; 10] = [0; 10];

/// Port 0 is a guest, port 1 an uplink, and port 2 an interface of the host. The sockets of the
/// latter two hold a few frames.
struct Rig {
    words: Arc<SharedWords>,
    ports: Vec<Arc<Port>>,
    switch: Switch,
    driver: TxDriver,
    queue: TxQueue,
    work: Workspace,
    timers: Timers,
    sockets: [OwnedFd; 2],
    now: Instant,
}

fn mac(id: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, id as u8])
}

impl Rig {
    /// Builds the ports, with the guest and the interface in this VLAN.
    fn new(vlan: u16) -> Self {
        let words = empty_words();
        let kinds =
            [PortKind::VhostUser { offloads: true, queue_pairs: 1 }, PortKind::Uplink, PortKind::Netdev];
        let config = |(id, kind)| PortConfig {
            vlan: if kind == PortKind::Uplink { Vlan::all() } else { Vlan::Access(vlan) },
            ..PortConfig::new(PortId(id), String::new(), kind, SegmentId(1), mac(id))
        };
        let configs: Vec<_> = (0..).zip(kinds).map(config).collect();
        let port = |config: &PortConfig| {
            Arc::new(Port::new(config.id, config.kind, PortBlock::new(&words, config.id)))
        };
        let ports: Vec<_> = configs.iter().map(port).collect();
        let sockets = [1, 2].map(|at: usize| {
            let (ours, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
            set_socket_send_buffer_size(&ours, 6_000).unwrap();
            let ring = PacketRing { slot: 2048, slots_per_block: 2, block: 4096, blocks: 1 };
            let socket = Arc::new(ForeignFd::own(ours));
            let end = packet::Rx::new(socket, PacketSocket { uso: true, ring });
            ports[at].rx(PairIdx::FIRST).end = Some(RxEnd::Packet(end));
            theirs
        });
        let outsides = [(SegmentId(1), Outside::of_one_team(&configs))].into();
        let mut ram = Ram::new(8 << 20).unwrap();
        let layout = QueueLayout::allocate(&mut ram, 256).unwrap();
        let driver = TxDriver::new(&mut ram, layout, FEATURES, 4096).unwrap().unwrap();
        Self {
            switch: Switch::new(configs.iter().zip(&ports), &outsides, &BTreeMap::new(), &Switch::default()),
            queue: TxQueue::new(ram.memory(), &layout.config(FEATURES, Start::At(0))).unwrap(),
            words,
            ports,
            driver,
            work: Workspace::default(),
            timers: Timers::default(),
            sockets,
            now: Instant::now(),
        }
    }

    /// Has the guest send a frame of this length to an address, which is returned.
    fn send(&mut self, to: MacAddr, len: usize) -> Vec<u8> {
        let mut frame = [&to.0[..], &mac(0).0[..], &[0x88, 0xb5]].concat();
        frame.extend((frame.len()..len).map(|at| (at + len) as u8));
        assert!(self.driver.send(&NetHeader::default(), &frame));
        self.driver.ring().publish();
        frame
    }

    /// Serves the guest once, `ms` milliseconds after the start.
    fn serve(&mut self, ms: u64) -> (usize, Verdict) {
        let now = self.now + Duration::from_millis(ms);
        let count = self.queue.peek().unwrap();
        let mut forwarder =
            Forwarder::new(&self.switch.segments[0], MemberIdx(0), PairIdx::FIRST, now, &mut self.work);
        let (done, verdict) = forwarder.forward_burst(&self.queue, count, &mut 0);
        forwarder.finish(&mut self.timers);
        drop(forwarder);
        assert!(self.work.leaving.is_empty() && self.work.failed.is_empty());
        self.queue.complete(done);
        self.driver.reclaim().unwrap();
        (done, verdict)
    }

    /// Messages that have arrived from a port.
    fn received(&self, port: usize) -> Vec<Vec<u8>> {
        let mut space = vec![0; 1 << 17];
        std::iter::from_fn(|| {
            let len = rustix::io::read(&self.sockets[port - 1], &mut *space).ok()?;
            Some(space[..len].to_vec())
        })
        .collect()
    }

    fn counters(&self, port: u16) -> PortCounters {
        let mut block = [0; PORT_WORDS];
        for (word, shared) in block.iter_mut().zip(&self.words.words()[port_base(PortId(port))..]) {
            *word = shared.load(Relaxed);
        }
        PortCounters::from_words(&block)
    }

    fn control(&self, bits_per_s: u64) {
        let senders = [(PortId(0), (TrafficClass::default(), "default".parse().unwrap()))].into();
        let setup = NetworkIoSetup { speed: bits_per_s, classes: BTreeMap::new(), senders };
        self.ports[1].set_network_io(Some(setup), self.now);
    }
}

fn messages(frames: &[Vec<u8>], vlan: u16) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| [&HEADER[..], &tagged(frame, vlan)].concat()).collect()
}

fn sum(frames: &[Vec<u8>]) -> u64 {
    frames.iter().map(|frame| frame.len() as u64).sum()
}

/// Bytes on the wire of frames without their tags.
fn wire(frames: &[Vec<u8>]) -> u64 {
    let bytes = |frame: &Vec<u8>| taut_uplink::netioc::wire_bytes(frame.len() as u32, 1, 0);
    frames.iter().map(|frame| u64::from(bytes(frame))).sum()
}

#[test]
fn frames_that_find_no_room_wait_in_their_ring_and_are_counted_once() {
    for (vlan, control) in [(0, false), (7, false), (7, true)] {
        let mut rig = Rig::new(vlan);
        if control {
            rig.control(100_000_000_000);
        }
        let lens = (0..BURST).map(|number| 14 + number * 20);
        let frames: Vec<_> = lens.map(|len| rig.send(mac(99), len)).collect();
        let (mut done, mut got, mut waits) = (0, Vec::new(), 0);
        while done < frames.len() {
            let (more, verdict) = rig.serve(0);
            done += more;
            waits += usize::from(matches!(verdict, Verdict::Wait(_)));
            got.extend(rig.received(1));
            assert!(got == messages(&frames[..done], vlan), "{done} frames in VLAN {vlan}");
            let [from, to] = [0, 1].map(|port| rig.counters(port));
            assert_eq!((from.tx_frames, from.tx_bytes), (done as u64, sum(&frames[..done])));
            let tags = if vlan == 0 { 0 } else { 4 * done as u64 };
            assert_eq!((to.rx_frames, to.rx_bytes), (done as u64, sum(&frames[..done]) + tags));
            assert_eq!([from.wire_tx_bytes, to.wire_tx_bytes], [wire(&frames[..done]); 2]);
        }
        assert!(waits > 2, "the socket was full {waits} times");
        assert!(rig.counters(1).rx_drops.is_empty());
    }
}

#[test]
fn frames_behind_one_that_waits_are_not_delivered() {
    let mut rig = Rig::new(0);
    for _ in 0..30 {
        rig.send(mac(99), 300);
    }
    rig.send(mac(2), 60);
    let (done, verdict) = rig.serve(0);
    assert!(done > 0 && done < 30 && matches!(verdict, Verdict::Wait(_)), "{done} {verdict:?}");
    assert_eq!(rig.received(2).len(), 0);
    assert_eq!(rig.received(1).len(), done);
    let (more, verdict) = rig.serve(1);
    assert!(more > 0 && matches!(verdict, Verdict::Wait(_)));
    // No room is made, and patience ends: all frames are done, and those that went are not lost.
    assert_eq!(rig.serve(1 + crate::port::wait_budget::LONGEST_WAIT.as_millis() as u64).1, Verdict::Done);
    let (left, lost) = (rig.received(1).len(), rig.counters(1).rx_drops);
    assert_eq!(left, more);
    assert_eq!(lost, [(DropReason::RingFull, (30 - done - more) as u64)]);
    assert_eq!(rig.received(2).len(), 1);
}

#[test]
fn receivers_alternate_and_broadcasts_keep_their_place() {
    let mut rig = Rig::new(0);
    let mut expected = [Vec::new(), Vec::new()];
    for (number, to) in [99, 99, 2, 99, 2, 2, 255, 99, 2].into_iter().enumerate() {
        let to = if to == 255 { MacAddr::BROADCAST } else { mac(to) };
        let frame = rig.send(to, 60 + number);
        if to != mac(2) {
            expected[0].push(frame.clone());
        }
        if to == mac(2) || to == MacAddr::BROADCAST {
            expected[1].push(frame);
        }
    }
    assert_eq!(rig.serve(0), (9, Verdict::Done));
    for (port, frames) in [1, 2].into_iter().zip(&expected) {
        assert_eq!(rig.received(port), messages(frames, 0), "port {port}");
    }
    assert_eq!(rig.counters(0).wire_tx_bytes, wire(&expected[0]));
}

#[test]
fn a_refused_frame_is_dropped_and_those_behind_it_are_sent() {
    let mut rig = Rig::new(0);
    let long = 20_000;
    let lens = [60, long, 70, long, long, 80];
    let frames: Vec<_> = lens.map(|len| rig.send(mac(99), len)).into();
    assert_eq!(rig.serve(0), (6, Verdict::Done));
    let sent: Vec<_> = frames.into_iter().filter(|frame| frame.len() < long).collect();
    assert_eq!(rig.received(1), messages(&sent, 0));
    assert_eq!(rig.counters(1).rx_drops, [(DropReason::Oversize, 3)]);
    assert_eq!((rig.counters(0).tx_frames, rig.counters(1).rx_frames), (6, 3));
    assert_eq!(rig.counters(1).wire_tx_bytes, wire(&sent));
}

#[test]
fn a_run_ends_with_its_senders_turn() {
    let mut rig = Rig::new(0);
    rig.control(1_000_000);
    let frames: Vec<_> = (0..BURST).map(|_| rig.send(mac(99), 60)).collect();
    let (mut done, mut turns) = (0, 0);
    let mut ms = 0;
    while done < frames.len() {
        let (more, verdict) = rig.serve(ms);
        done += more;
        assert_eq!(rig.received(1).len(), more);
        turns += usize::from(matches!(verdict, Verdict::Turn(_)));
        ms += 1;
        rig.ports[1].rx_due(PairIdx::FIRST, rig.now, rig.now + Duration::from_millis(ms), &mut rig.timers);
    }
    // 64 frames of 84 bytes take 43 ms at 1 Mbit/s.
    assert!(turns > 0 && (10..60).contains(&ms), "{turns} turns in {ms} ms");
}

#[test]
fn a_refused_frame_has_had_its_turn() {
    let mut rig = Rig::new(0);
    rig.control(1_000_000);
    for _ in 0..3 {
        rig.send(mac(99), 20_000);
    }
    // The kernel refuses the first one, which counts as 160 ms of 1 Mbit/s.
    for expected in [1, 0] {
        let (done, verdict) = rig.serve(0);
        assert!(done == expected && matches!(verdict, Verdict::Turn(_)), "{done} {verdict:?}");
    }
    assert_eq!(rig.counters(1).rx_drops, [(DropReason::Oversize, 1)]);
}

#[test]
fn a_run_is_short_and_ends_its_burst_while_the_time_of_bursts_is_limited() {
    let mut rig = Rig::new(0);
    // The kernel refuses these, so there is room for all of them.
    for _ in 0..6 {
        rig.send(mac(99), 20_000);
    }
    rig.work.longest_burst = Some(Duration::ZERO);
    assert_eq!(rig.serve(0), (2, Verdict::Done));
    rig.work.longest_burst = None;
    assert_eq!(rig.serve(0), (4, Verdict::Done));
}
