//! Tests of the path of a frame with a simulated clock: waiting, resuming and giving up.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use taut_api::fabric::capture::{Direction, Directions, HEADER, MAX_SNAPLEN, Message, Record};
use taut_api::fabric::config::{PortConfig, PortKind, PortMirror, SegmentId};
use taut_api::fabric::counters::{FILE_SIZE, PORT_WORDS, PortCounters, port_base};
use taut_api::fabric::{DropReason, ForeignFd, PortId};
use taut_api::{Coalescing, MacAddr};
use taut_virtq::Start;
use taut_virtq::counters::SharedWords;
use taut_virtq::driver::{QueueLayout, Ram, RxDriver};
use taut_virtq::header::{GSO_TCPV4, NEEDS_CSUM, NetHeader};
use taut_virtq::{GuestMemory, features};

use super::*;
use crate::net::queue::{PairIdx, QueueIdx};
use crate::net::software_offload::NO_OFFLOADS;
use crate::port::capture::Capture;
use crate::port::wait_budget::{LONGEST_WAIT, UplinkBudget};
use crate::port::{Body, Port};
use crate::snooping::Snooping;
use crate::switch::Switch;
use crate::sys::counters::PortBlock;
use crate::vhost_user::device::{Ring, RingSetup};
use crate::wake::mailbox::Mailboxes;
use crate::wake::timers::Timers;

mod group;

/// Ports on one segment. All but port 0 have receive rings of eight buffers.
struct Rig {
    words: Arc<SharedWords>,
    configs: Vec<PortConfig>,
    snooping: BTreeMap<SegmentId, Arc<Snooping>>,
    switch: Switch,
    drivers: Vec<RxDriver>,
    work: Workspace,
    timers: Timers,
    start: Instant,
    /// Delivered pieces of port 0's first frame.
    pieces_done: usize,
    /// Port 0 sends as an uplink, with this budget.
    uplink: Option<UplinkBudget>,
}

const FEATURES: u64 = features::VERSION_1;
const BUFFERS: u16 = 8;

fn mac(id: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, id as u8])
}

fn ring(memory: &Arc<GuestMemory>, layout: QueueLayout, port: &Port) {
    let event = || ForeignFd::own(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    let setup = RingSetup { memory: Arc::clone(memory), config: layout.config(FEATURES, Start::At(0)) };
    let ring = Ring { setup, kick: Arc::new(event()), call: Some(Arc::new(event().into())) };
    port.start_ring(QueueIdx(0), ring, &Mailboxes::new().unwrap()).unwrap();
}

impl Rig {
    fn new() -> Self {
        Self::on(&["0"; 3])
    }

    /// Builds the ports with these VLANs.
    fn on(vlans: &[&str]) -> Self {
        Self::with(vlans, |_| {})
    }

    /// Builds the ports with these VLANs and other settings.
    fn with(vlans: &[&str], set: impl Fn(&mut [PortConfig])) -> Self {
        let file = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, FILE_SIZE).unwrap();
        let words = Arc::new(SharedWords::map(file.as_fd(), FILE_SIZE as usize / 8).unwrap());
        let kind = PortKind::VhostUser { offloads: true, queue_pairs: 1 };
        let mut configs: Vec<_> = (0..vlans.len() as u16)
            .map(|id| PortConfig {
                vlan: vlans[usize::from(id)].parse().unwrap(),
                lro: true,
                ..PortConfig::new(PortId(id), String::new(), kind, SegmentId(1), mac(id))
            })
            .collect();
        set(&mut configs);
        let ports: Vec<_> = configs
            .iter()
            .map(|config| Arc::new(Port::new(config.id, kind, PortBlock::new(&words, config.id))))
            .collect();
        let drivers = ports[1..].iter().map(|port| {
            let mut ram = Ram::new(1 << 20).unwrap();
            let layout = QueueLayout::allocate(&mut ram, BUFFERS).unwrap();
            let mut driver = RxDriver::new(&mut ram, layout, FEATURES, 2048).unwrap().unwrap();
            driver.ring().publish();
            ring(ram.memory(), layout, port);
            driver
        });
        Self {
            drivers: drivers.collect(),
            switch: Switch::new(
                configs.iter().zip(&ports),
                &BTreeMap::new(),
                &BTreeMap::new(),
                &Switch::default(),
            ),
            configs,
            snooping: BTreeMap::new(),
            words,
            work: Workspace::default(),
            timers: Timers::default(),
            start: Instant::now(),
            pieces_done: 0,
            uplink: None,
        }
    }

    /// Port 0 sends a frame `ms` milliseconds after the start.
    fn send(&mut self, ms: u64, header: &NetHeader, frame: &[u8]) -> Verdict {
        let now = self.start + Duration::from_millis(ms);
        let mut forwarder =
            Forwarder::new(&self.switch.segments[0], MemberIdx(0), PairIdx::FIRST, now, &mut self.work);
        if let Some(budget) = &mut self.uplink {
            budget.end(now);
            forwarder.limit_waits(budget.left(now));
        }
        let body = Body::Host(frame);
        let verdict = forwarder.forward(frame, frame.len(), header, body, &mut self.pieces_done);
        forwarder.finish(&mut self.timers);
        drop(forwarder);
        if let Some(budget) = &mut self.uplink
            && verdict != Verdict::Done
        {
            budget.begin(now);
        }
        assert!(self.work.failed.is_empty());
        verdict
    }

    fn send_plain(&mut self, ms: u64, to: MacAddr) -> Verdict {
        let mut frame = [&to.0[..], &mac(0).0[..], &[0x88, 0xb5]].concat();
        frame.resize(64, 7);
        self.send(ms, &NO_OFFLOADS, &frame)
    }

    /// Takes so many frames at most.
    fn receive_some(&mut self, port: u16, count: usize) {
        let driver = &mut self.drivers[usize::from(port) - 1];
        let mut frame = Vec::new();
        for _ in 0..count {
            driver.receive(&mut frame).unwrap();
        }
        driver.ring().publish();
    }

    fn received(&mut self, port: u16) -> Vec<Vec<u8>> {
        let driver = &mut self.drivers[usize::from(port) - 1];
        let mut frames = Vec::new();
        let mut frame = Vec::new();
        while driver.receive(&mut frame).unwrap().is_some() {
            frames.push(frame.clone());
        }
        driver.ring().publish();
        frames
    }

    fn counters(&self, port: u16) -> PortCounters {
        let mut block = [0; PORT_WORDS];
        for (word, shared) in block.iter_mut().zip(&self.words.words()[port_base(PortId(port))..]) {
            *word = shared.load(std::sync::atomic::Ordering::Relaxed);
        }
        PortCounters::from_words(&block)
    }

    /// Has the frames of a port captured from now on. Returns the socket of the reader.
    fn capture(&mut self, port: usize) -> OwnedFd {
        let (reader, socket) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let capture = Arc::new(Capture::new(socket, MAX_SNAPLEN, Directions::Both));
        capture.begin();
        recv(&reader, &mut [0_u8; HEADER], RecvFlags::DONTWAIT).unwrap();
        self.switch.segments[0].members[port].port.set_captures([capture].into_iter().collect());
        self.reconfigure();
        reader
    }

    /// Builds the switch again.
    fn reconfigure(&mut self) {
        let members = &self.switch.segments[0].members;
        let ports: Vec<_> = members.iter().map(|member| Arc::clone(&member.port)).collect();
        let configs = self.configs.iter().zip(&ports);
        self.switch = Switch::new(configs, &BTreeMap::new(), &self.snooping, &self.switch);
    }

    fn waits_until(&self, ms: u64) -> Verdict {
        Verdict::Wait(self.start + Duration::from_millis(ms))
    }
}

#[test]
fn a_port_receives_nothing_while_its_driver_has_set_an_address_that_is_rejected() {
    let other = mac(9);
    for (accepts, effective) in [(false, other), (false, mac(1)), (true, other)] {
        let mut rig = Rig::with(&["0"; 3], |configs| {
            configs[1].effective = Some(effective);
            configs[1].security.mac_changes = accepts;
            configs[1].security.promiscuous = true;
        });
        for to in [mac(1), other, mac(2), MacAddr::BROADCAST] {
            assert_eq!(rig.send_plain(0, to), Verdict::Done);
        }
        let (received, drops) = (rig.received(1).len(), rig.counters(1).rx_drops);
        if !accepts && effective == other {
            assert_eq!((received, drops), (0, vec![(DropReason::AddressChanged, 4)]));
        } else {
            assert_eq!((received, drops), (4, vec![]), "{accepts} {effective}");
        }
        assert_eq!(rig.received(2).len(), 2, "others have their frames");
    }
}

const WAIT_MS: u64 = LONGEST_WAIT.as_millis() as u64;

#[test]
fn a_full_receiver_delays_its_sender_once_and_then_loses_frames_until_it_has_room() {
    let mut rig = Rig::new();
    for _ in 0..BUFFERS {
        assert_eq!(rig.send_plain(0, mac(1)), Verdict::Done);
    }
    assert_eq!(rig.send_plain(10, mac(1)), rig.waits_until(10 + WAIT_MS));
    assert_eq!(rig.send_plain(10 + WAIT_MS - 1, mac(1)), rig.waits_until(10 + WAIT_MS));
    for ms in [0, 1, 100] {
        assert_eq!(rig.send_plain(10 + WAIT_MS + ms, mac(1)), Verdict::Done);
    }
    let counters = rig.counters(1);
    assert_eq!(counters.rx_drops, [(DropReason::RingFull, 3)]);
    assert_eq!(counters.rx_waits, 1);
    assert_eq!(rig.counters(0).tx_frames, u64::from(BUFFERS) + 3, "a waiting frame is not counted");

    assert_eq!(rig.received(1).len(), usize::from(BUFFERS));
    for _ in 0..BUFFERS {
        assert_eq!(rig.send_plain(200, mac(1)), Verdict::Done);
    }
    assert_eq!(rig.send_plain(200, mac(1)), rig.waits_until(200 + WAIT_MS), "room again, patience again");
    assert_eq!(rig.counters(1).rx_waits, 2);
}

/// Lets port 0 send to slow guests in turn as fast as it can, and returns the part of two seconds
/// in which its queue stands still. The guests post a buffer each four milliseconds.
fn standstill(rig: &mut Rig, guests: &[u16]) -> f64 {
    for &guest in guests {
        (0..BUFFERS).for_each(|_| assert_eq!(rig.send_plain(0, mac(guest)), Verdict::Done));
        rig.receive_some(guest, usize::from(BUFFERS) - 1);
    }
    let mut receivers = guests.iter().cycle();
    let mut to = *receivers.next().unwrap();
    let mut waited = Duration::ZERO;
    for ms in 1..=2000 {
        if ms % 4 == 0 {
            for &guest in guests {
                rig.receive_some(guest, 1);
            }
        }
        for _ in 0..20 {
            if let Verdict::Wait(until) = rig.send_plain(ms, mac(to)) {
                let now = rig.start + Duration::from_millis(ms);
                waited += until.saturating_duration_since(now).min(Duration::from_millis(1));
                break;
            }
            to = *receivers.next().unwrap();
        }
    }
    waited.as_secs_f64() / 2.0
}

#[test]
fn slow_guests_hold_an_uplink_for_a_small_share_of_the_time() {
    let mut rig = Rig::new();
    let part = standstill(&mut rig, &[1]);
    assert!(part > 0.9, "{part}: a sender that is no uplink waits for its receiver");
    let all: Vec<u16> = (1..=16).collect();
    for (guests, least, most) in [(1, 0.02, 1.0 / 16.0), (2, 0.04, 2.0 / 16.0), (16, 0.15, 1.0 / 4.0)] {
        let mut rig = Rig::on(&["0"; 17]);
        rig.uplink = Some(UplinkBudget::default());
        let part = standstill(&mut rig, &all[..guests]);
        assert!((least..=most + 0.01).contains(&part), "{part} of the time for {guests} guests");
    }
}

#[test]
fn a_sender_that_is_no_uplink_uses_up_no_budget_of_its_receiver() {
    let mut rig = Rig::new();
    (0..BUFFERS).for_each(|_| assert_eq!(rig.send_plain(0, mac(1)), Verdict::Done));
    assert_eq!(rig.send_plain(1, mac(1)), rig.waits_until(1 + WAIT_MS));
    rig.received(1);
    assert_eq!(rig.send_plain(4, mac(1)), Verdict::Done);
    let slot = rig.switch.segments[0].members[1].port.rx(PairIdx::FIRST);
    assert_eq!(slot.waits.left(rig.start + Duration::from_millis(4)), LONGEST_WAIT);
}

#[test]
fn a_guest_gets_no_new_budget_by_a_new_ring() {
    let mut rig = Rig::new();
    rig.uplink = Some(UplinkBudget::default());
    rig.switch.segments[0].members[1].port.stop_ring(QueueIdx(0));
    assert_eq!(rig.send_plain(5, mac(1)), rig.waits_until(5 + WAIT_MS));
    assert_eq!(rig.send_plain(5 + WAIT_MS, mac(1)), Verdict::Done, "it is dropped");
    let port = &rig.switch.segments[0].members[1].port;
    port.stop_ring(QueueIdx(0));
    let spent = rig.start + Duration::from_millis(5 + WAIT_MS);
    assert_eq!(port.rx(PairIdx::FIRST).waits.left(spent), Duration::ZERO);
}

#[test]
fn copies_for_many_never_wait() {
    let mut rig = Rig::new();
    for _ in 0..BUFFERS {
        rig.send_plain(0, mac(1));
    }
    assert_eq!(rig.send_plain(0, MacAddr::BROADCAST), Verdict::Done);
    assert_eq!(rig.counters(1).rx_drops, [(DropReason::RingFull, 1)]);
    assert_eq!(rig.received(2).len(), 1);
}

#[test]
fn a_port_without_rings_delays_its_sender_only_once() {
    let mut rig = Rig::new();
    rig.switch.segments[0].members[1].port.stop_ring(QueueIdx(0));
    assert_eq!(rig.send_plain(5, mac(1)), rig.waits_until(5 + WAIT_MS));
    assert_eq!(rig.send_plain(5 + WAIT_MS, mac(1)), Verdict::Done);
    assert_eq!(rig.send_plain(6 + WAIT_MS, mac(1)), Verdict::Done);
    assert_eq!(rig.counters(1).rx_drops, [(DropReason::PortDown, 2)]);
}

#[test]
fn a_segmented_frame_resumes_at_the_segment_that_found_no_room() {
    let mut rig = Rig::new();
    let payload = 20_000_usize;
    let mut frame = [&mac(1).0[..], &mac(0).0[..], &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend(((40 + payload) as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0; 12]);
    frame.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    frame.extend((0..payload).map(|at| (at % 249) as u8));
    let header = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
        ..NO_OFFLOADS
    };
    let mut got = Vec::new();
    let mut rounds = 0;
    while rig.send(rounds, &header, &frame) != Verdict::Done {
        got.extend(rig.received(1));
        rounds += 1;
    }
    got.extend(rig.received(1));
    assert_eq!(rounds, 2, "20 segments into 8 buffers");
    assert_eq!(got.len(), 20);
    assert_eq!(got.iter().flat_map(|segment| &segment[54..]).copied().collect::<Vec<_>>(), frame[54..]);
    assert_eq!(rig.pieces_done, 0);
    assert_eq!((rig.counters(0).tx_frames, rig.counters(1).rx_frames), (1, 20));
}

#[test]
fn a_delayed_interrupt_is_sent_in_time_or_when_the_guest_must_make_room() {
    let mut rig = Rig::new();
    let port = Arc::clone(&rig.switch.segments[0].members[1].port);
    port.moderate(Coalescing::Rbc { rate: 100 });

    // The first interrupt is sent at once, the next one at its time.
    rig.send_plain(0, mac(1));
    assert_eq!(rig.counters(1).interrupts, 1);
    rig.send_plain(1, mac(1));
    assert_eq!(rig.counters(1).interrupts, 1);
    let due = rig.start + Duration::from_millis(10);
    assert_eq!(rig.timers.next(), Some(due));
    for (ms, interrupts) in [(9, 1), (10, 2), (20, 2)] {
        let now = rig.start + Duration::from_millis(ms);
        port.rx_due(PairIdx::FIRST, due, now, &mut rig.timers);
        assert_eq!(rig.counters(1).interrupts, interrupts, "{ms} ms");
    }
    rig.received(1);

    // Half a ring, and a full ring, end the delay: the guest must make room.
    rig.send_plain(30, mac(1));
    assert_eq!(rig.counters(1).interrupts, 3);
    for (frame, interrupts) in [(2, 3), (3, 3), (4, 3), (5, 4), (6, 4), (7, 4), (8, 4), (9, 5)] {
        rig.send_plain(31, mac(1));
        assert_eq!(rig.counters(1).interrupts, interrupts, "frame {frame}");
    }
    rig.pieces_done = 0;
    rig.received(1);

    // A change of the scheme, and the stop of the ring, end the delay.
    rig.send_plain(32, mac(1));
    assert_eq!(rig.counters(1).interrupts, 5);
    port.moderate(Coalescing::Disabled);
    port.rx_due(PairIdx::FIRST, rig.start, rig.start + Duration::from_millis(32), &mut rig.timers);
    assert_eq!(rig.counters(1).interrupts, 6);
    port.moderate(Coalescing::Static { packets: 64 });
    rig.send_plain(33, mac(1));
    assert_eq!(rig.counters(1).interrupts, 6);
    port.stop_ring(QueueIdx(0));
    assert_eq!(rig.counters(1).interrupts, 7);
}

#[test]
fn tags_are_inserted_and_removed_in_frames_from_the_fabrics_memory() {
    let mut rig = Rig::on(&["10", "10-20", "10"]);
    let mut tagged = [&mac(1).0[..], &mac(0).0[..], &[0x81, 0, 0, 10, 0x88, 0xb5]].concat();
    for len in [18, 64, 68, 70, 1500] {
        tagged.resize(len, 7);
        let plain = [&tagged[..12], &tagged[16..]].concat();
        rig.send(0, &NO_OFFLOADS, &plain);
        assert_eq!(rig.received(1), [tagged.clone()]);
    }
    // A priority tag is removed on the way to an access port.
    tagged[5] = 2;
    tagged[15] = 0;
    rig.send(0, &NO_OFFLOADS, &tagged);
    assert_eq!(rig.received(2), [[&tagged[..12], &tagged[16..]].concat()]);
    tagged[15] = 20;
    rig.send(0, &NO_OFFLOADS, &tagged);
    assert_eq!(rig.counters(0).tx_drops, [(DropReason::VlanTag, 1)]);
    // A checksum must not begin before the end of the tag.
    tagged[15] = 0;
    let header = NetHeader { flags: NEEDS_CSUM, csum_start: 14, csum_offset: 6, ..NO_OFFLOADS };
    rig.send(0, &header, &tagged);
    assert_eq!(rig.counters(0).tx_drops, [(DropReason::BadHeader, 1), (DropReason::VlanTag, 1)]);
}

/// Returns the frames that a capture has recorded since the last call.
fn recorded(reader: &OwnedFd) -> Vec<(Direction, Option<DropReason>, Vec<u8>)> {
    let mut packet = vec![0; HEADER + MAX_SNAPLEN as usize];
    let mut frames = Vec::new();
    while let Ok((got, _)) = recv(reader, &mut packet[..], RecvFlags::DONTWAIT) {
        let message = Message::parse(&packet[..got]);
        let Ok(Message::Frame(Record { direction, dropped, bytes, lost: 0, .. })) = message else {
            panic!("{message:?}");
        };
        frames.push((direction, dropped, bytes.to_vec()));
    }
    frames
}

#[test]
fn a_capture_has_each_frame_once_as_its_port_has_it() {
    use Direction::{Rx, Tx};
    let mut rig = Rig::on(&["10", "10-20", "10"]);
    let (sender, trunk) = (rig.capture(0), rig.capture(1));
    let mut tagged = [&mac(1).0[..], &mac(0).0[..], &[0x81, 0, 0, 10, 0x88, 0xb5]].concat();
    for len in [18, 64, 68, 70, 1500] {
        tagged.resize(len, 7);
        let plain = [&tagged[..12], &tagged[16..]].concat();
        rig.send(0, &NO_OFFLOADS, &plain);
        assert_eq!(rig.received(1), [tagged.clone()]);
        assert_eq!(recorded(&sender), [(Tx, None, plain)]);
        assert_eq!(recorded(&trunk), [(Rx, None, tagged.clone())]);
    }
    let forged = [&mac(1).0[..], &mac(9).0[..], &[0x88, 0xb5], &[0; 46]].concat();
    rig.send(0, &NO_OFFLOADS, &forged);
    rig.send(0, &NO_OFFLOADS, &[1; 13]);
    let dropped = [(Tx, Some(DropReason::ForgedTransmit), forged), (Tx, Some(DropReason::Runt), vec![1; 13])];
    assert_eq!(recorded(&sender), dropped);
    // Frames between others are not recorded.
    rig.send_plain(0, mac(2));
    assert_eq!((recorded(&sender).len(), recorded(&trunk).len()), (1, 0));
    rig.send_plain(0, MacAddr::BROADCAST);
    assert_eq!((recorded(&sender).len(), recorded(&trunk).len()), (1, 1));
}

#[test]
fn a_frame_that_waits_for_room_is_recorded_when_its_fate_is_known() {
    let mut rig = Rig::new();
    let (sender, receiver) = (rig.capture(0), rig.capture(1));
    for _ in 0..BUFFERS {
        rig.send_plain(0, mac(1));
    }
    assert_eq!(recorded(&sender).len(), usize::from(BUFFERS));
    assert_eq!(recorded(&receiver).len(), usize::from(BUFFERS));
    assert_eq!(rig.send_plain(10, mac(1)), rig.waits_until(10 + WAIT_MS));
    assert_eq!((recorded(&sender).len(), recorded(&receiver).len()), (0, 0), "it waits");
    assert_eq!(rig.send_plain(10 + WAIT_MS, mac(1)), Verdict::Done);
    let dropped = recorded(&receiver);
    assert_eq!((dropped.len(), dropped[0].1), (1, Some(DropReason::RingFull)));
    // The drop is counted at the receiver.
    let sent = recorded(&sender);
    assert_eq!((sent.len(), sent[0].1), (1, None));
    // A reader that has gone delays nobody.
    rig.received(1);
    assert_eq!(rig.send_plain(200, mac(1)), Verdict::Done);
    drop((sender, receiver));
    assert_eq!(rig.send_plain(201, mac(1)), Verdict::Done);
    assert_eq!(rig.received(1).len(), 2);
}

#[test]
fn a_mirror_has_copies_of_what_its_sources_send_and_receive_whatever_its_vlan() {
    let mut rig = Rig::on(&["10", "10-20", "30"]);
    let mirror = |directions| vec![PortMirror { to: PortId(2), directions }];
    rig.configs[0].mirrors = mirror(Directions::Tx);
    rig.configs[1].mirrors = mirror(Directions::Rx);
    rig.reconfigure();
    let seen = rig.capture(2);
    let mut tagged = [&mac(1).0[..], &mac(0).0[..], &[0x81, 0, 0, 10, 0x88, 0xb5]].concat();
    tagged.resize(100, 7);
    let plain = [&tagged[..12], &tagged[16..]].concat();
    rig.send(0, &NO_OFFLOADS, &plain);
    assert_eq!(rig.received(1), [tagged.clone()]);
    assert_eq!(rig.received(2), [tagged.clone(), plain.clone()]);
    let copies = [(Direction::Rx, None, tagged), (Direction::Rx, None, plain)];
    assert_eq!(recorded(&seen), copies);
    // A frame that the policy refuses is not copied.
    rig.send(0, &NO_OFFLOADS, &[&mac(1).0[..], &mac(9).0[..], &[0x88, 0xb5], &[0; 46]].concat());
    assert!(rig.received(1).is_empty() && rig.received(2).is_empty());
    // A destination without room loses copies, and nobody waits for it.
    let buffers = usize::from(BUFFERS);
    for _ in 0..buffers {
        assert_eq!(rig.send_plain(0, mac(1)), Verdict::Done);
    }
    assert_eq!(rig.counters(2).rx_drops, [(DropReason::RingFull, u64::from(BUFFERS))]);
    assert_eq!((rig.received(1).len(), rig.received(2).len()), (buffers, buffers));
    rig.configs[0].mirrors.clear();
    rig.configs[1].mirrors.clear();
    rig.reconfigure();
    rig.send_plain(0, mac(1));
    assert_eq!((rig.received(1).len(), rig.received(2).len()), (1, 0));
}
