//! Tests of the path of a frame with a simulated clock.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use taut_api::fabric::capture::{Direction, Directions, HEADER, MAX_SNAPLEN, Message, Record};
use taut_api::fabric::config::{PortConfig, PortKind, PortMirror, SegmentId};
use taut_api::fabric::counters::{PORT_WORDS, PortCounters, port_base};
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
use crate::sys::counters::{PortBlock, empty_words};
use crate::vhost_user::device::{Ring, RingSetup};
use crate::wake::mailbox::Mailboxes;
use crate::wake::timers::Timers;

mod delivered;
mod group;
mod heard;
mod waiting;
mod watched;

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
/// Time for which a frame may wait for room.
const WAIT_MS: u64 = LONGEST_WAIT.as_millis() as u64;

fn mac(id: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, id as u8])
}

/// A frame of this length from port 0 to port 1, with the tag of VLAN 10.
fn in_vlan_10(len: usize) -> Vec<u8> {
    let mut frame = [&mac(1).0[..], &mac(0).0[..], &[0x81, 0, 0, 10, 0x88, 0xb5]].concat();
    frame.resize(len, 7);
    frame
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
        let words = empty_words();
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
        self.send_from(MemberIdx(0), ms, header, frame)
    }

    fn send_from(&mut self, sender: MemberIdx, ms: u64, header: &NetHeader, frame: &[u8]) -> Verdict {
        let now = self.start + Duration::from_millis(ms);
        let mut forwarder =
            Forwarder::new(&self.switch.segments[0], sender, PairIdx::FIRST, now, &mut self.work);
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
