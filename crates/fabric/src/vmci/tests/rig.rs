//! The hub, driven step by step, and guests that say what they are told to say.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_api::fabric::PortId;
use taut_api::fabric::config::{SocketConfig, SocketWorker, WorkerMode};
use taut_api::fabric::counters::{FILE_SIZE, SocketWord, port_base};
use taut_api::vmci::Cid;
use taut_virtq::counters::SharedWords;
use taut_virtq::device::Start;
use taut_virtq::device::socket::RING_FEATURES;
use taut_virtq::driver::{QueueLayout, Ram, Shape, SocketRxDriver, SocketTxDriver};
use taut_virtq::socket_header::{REQUEST, RESPONSE, RST, RW, STREAM, SocketHeader};

use crate::vhost_user::device::Ring;
use crate::vmci::hub::Hub;

pub(super) const ALLOC: u32 = 256 << 10;

pub(super) fn words() -> Arc<SharedWords> {
    let file = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, FILE_SIZE).unwrap();
    Arc::new(SharedWords::map(file.as_fd(), FILE_SIZE as usize / 8).unwrap())
}

pub(super) fn device(number: u32, domains: &[&str]) -> SocketConfig {
    SocketConfig {
        id: PortId(number as u16),
        owner: format!("vm/{number}/vmci"),
        cid: Cid(number),
        domains: domains.iter().map(|name| name.parse().unwrap()).collect(),
        unrestricted: false,
        connections: 64,
        half_open: 8,
    }
}

/// A guest's driver.
pub(super) struct Driver {
    pub(super) cid: u32,
    ram: Ram,
    layouts: [QueueLayout; 2],
    tx: SocketTxDriver,
    rx: SocketRxDriver,
    pub(super) inbox: VecDeque<(SocketHeader, Vec<u8>)>,
    /// It takes nothing out of its receive ring.
    pub(super) stuck: bool,
}

impl Driver {
    fn new(cid: u32, buffer: u32) -> Self {
        let mut ram = Ram::new(16 << 20).unwrap();
        let layouts = [(); 2].map(|()| QueueLayout::allocate(&mut ram, 64).unwrap());
        let rx = SocketRxDriver::new(&mut ram, layouts[0], RING_FEATURES, Shape::Whole, buffer);
        let tx = SocketTxDriver::new(&mut ram, layouts[1], RING_FEATURES, Shape::Apart, 64 << 10);
        let (mut rx, tx) = (rx.unwrap().unwrap(), tx.unwrap().unwrap());
        rx.ring().publish();
        Self { cid, ram, layouts, tx, rx, inbox: VecDeque::new(), stuck: false }
    }

    pub(super) fn send(&mut self, header: SocketHeader, payload: &[u8]) -> bool {
        self.tx.reclaim().unwrap();
        let sent = self.tx.send(header, &[payload]);
        self.tx.ring().publish();
        sent
    }

    /// The same by a guest that does not look what it has got back.
    fn send_only(&mut self, header: SocketHeader, payload: &[u8]) -> bool {
        let sent = self.tx.send(header, &[payload]);
        self.tx.ring().publish();
        sent
    }

    /// Packets that it has not got back.
    pub(super) fn outstanding(&mut self) -> usize {
        self.tx.reclaim().unwrap();
        64 - self.tx.ring().free()
    }

    fn receive(&mut self) {
        if self.stuck {
            return;
        }
        let take = |header, payload: &mut taut_virtq::driver::Payload<'_>| {
            let mut bytes = vec![0; payload.left()];
            payload.read(&mut bytes);
            (header, bytes)
        };
        while let Some(packet) = self.rx.receive(take).unwrap() {
            self.inbox.push_back(packet);
        }
        self.rx.ring().publish();
    }
}

/// A connection as a guest's program sees it: headers made for it, room told.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub(super) guest: usize,
    pub(super) port: u32,
    pub(super) peer: (u32, u32),
    pub(super) taken: u32,
}

pub(super) struct Rig {
    pub(super) hub: Hub,
    pub(super) words: Arc<SharedWords>,
    pub(super) drivers: Vec<Driver>,
    pub(super) now: Instant,
    configs: Vec<SocketConfig>,
}

impl Rig {
    /// Guests with context IDs from 3 on, in these domains, with receive buffers of so many bytes.
    pub(super) fn new(domains: &[&[&str]], buffer: u32) -> Self {
        let configs = (3..).zip(domains).map(|(cid, domains)| device(cid, domains)).collect();
        Self::with(configs, buffer)
    }

    pub(super) fn with(configs: Vec<SocketConfig>, buffer: u32) -> Self {
        let words = words();
        let drivers = configs.iter().map(|config| Driver::new(config.cid.0, buffer)).collect();
        let hub = Hub::new(&words).unwrap();
        let mut rig = Self { hub, words, drivers, now: Instant::now(), configs };
        rig.configure();
        rig.hub.begin(Vec::new());
        (0..rig.drivers.len()).for_each(|guest| rig.start(guest, Start::At(0)));
        rig
    }

    fn configure(&mut self) {
        let worker = SocketWorker { mode: WorkerMode::Polling, cpu: None };
        assert_eq!(self.hub.configure(&self.configs, &worker), []);
    }

    pub(super) fn start(&mut self, guest: usize, start: Start) {
        self.start_each(guest, [start; 2]);
    }

    fn start_at(&mut self, guest: usize, positions: [u16; 2]) {
        self.start_each(guest, positions.map(Start::At));
    }

    fn start_each(&mut self, guest: usize, starts: [Start; 2]) {
        let driver = &self.drivers[guest];
        let event = || Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        for queue in [0, 1] {
            let config = driver.layouts[queue].config(RING_FEATURES, starts[queue]);
            let ring = Ring { config, kick: event(), call: Some(event()) };
            let memory = driver.ram.memory();
            let started = if queue == 0 {
                self.hub.start_rx(guest, memory, ring)
            } else {
                self.hub.start_tx(guest, memory, ring)
            };
            started.unwrap();
        }
    }

    /// Another hub takes the place of this one, which has stopped (or was killed).
    pub(super) fn succeed(&mut self, streams: Vec<(u32, OwnedFd)>) {
        self.take_over(streams);
        (0..self.drivers.len()).for_each(|guest| self.start(guest, Start::Recover));
    }

    fn take_over(&mut self, streams: Vec<(u32, OwnedFd)>) {
        self.hub = Hub::new(&self.words).unwrap();
        self.configure();
        self.hub.begin(streams);
    }

    /// Until nobody has anything to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            let worked = self.step();
            if !worked {
                return;
            }
        }
        panic!("it never ends");
    }

    pub(super) fn step(&mut self) -> bool {
        self.now += Duration::from_micros(10);
        for guest in 0..self.drivers.len() {
            self.hub.wake(guest, self.now);
            self.hub.has_buffers(guest);
        }
        let worked = self.hub.round(self.now);
        let before = self.drivers.iter().map(|driver| driver.inbox.len()).sum::<usize>();
        self.drivers.iter_mut().for_each(Driver::receive);
        worked || before != self.drivers.iter().map(|driver| driver.inbox.len()).sum::<usize>()
    }

    pub(super) fn count(&self, guest: usize, word: SocketWord) -> u64 {
        let at = port_base(self.configs[guest].id) + word as usize;
        self.words.words()[at].load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn header(&self, own: Own, op: u16) -> SocketHeader {
        SocketHeader {
            src_cid: self.drivers[own.guest].cid.into(),
            dst_cid: own.peer.0.into(),
            src_port: own.port,
            dst_port: own.peer.1,
            len: 0,
            kind: STREAM,
            op,
            flags: 0,
            buf_alloc: ALLOC,
            fwd_cnt: own.taken,
        }
    }

    pub(super) fn say(&mut self, own: Own, op: u16, flags: u32) {
        let header = SocketHeader { flags, ..self.header(own, op) };
        assert!(self.drivers[own.guest].send(header, &[]));
    }

    pub(super) fn write(&mut self, own: Own, bytes: &[u8]) {
        let header = self.header(own, RW);
        assert!(self.drivers[own.guest].send(header, bytes), "the ring is full");
    }

    /// The same by a guest that does not look what it has got back.
    pub(super) fn write_only(&mut self, own: Own, bytes: &[u8]) {
        let header = self.header(own, RW);
        assert!(self.drivers[own.guest].send_only(header, bytes), "the ring is full");
    }

    /// A guest takes what it has got back, and wants to be interrupted for the next.
    pub(super) fn arm_returns(&mut self, guest: usize) {
        self.drivers[guest].outstanding();
        self.drivers[guest].tx.ring().arm_interrupts();
    }

    /// The next packet that a guest has received.
    pub(super) fn next(&mut self, guest: usize) -> (SocketHeader, Vec<u8>) {
        self.drivers[guest].inbox.pop_front().expect("nothing has arrived")
    }

    /// Everything that arrived for a connection's payload; there must be nothing else.
    pub(super) fn read(&mut self, own: &mut Own) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((header, bytes)) = self.drivers[own.guest].inbox.pop_front() {
            assert_eq!((header.op, header.dst_port, header.src_port), (RW, own.port, own.peer.1));
            own.taken = own.taken.wrapping_add(bytes.len() as u32);
            all.extend(bytes);
        }
        all
    }

    pub(super) fn ops(&mut self, guest: usize) -> Vec<u16> {
        self.drivers[guest].inbox.drain(..).map(|(header, _)| header.op).collect()
    }

    pub(super) fn ends(&self, from: usize, to: usize, port: u32) -> (Own, Own) {
        let (a, b) = (self.drivers[from].cid, self.drivers[to].cid);
        (
            Own { guest: from, port, peer: (b, 80), taken: 0 },
            Own { guest: to, port: 80, peer: (a, port), taken: 0 },
        )
    }

    /// A connection between two guests that is open.
    pub(super) fn connect(&mut self, from: usize, to: usize, port: u32) -> (Own, Own) {
        let (own, other) = self.ends(from, to, port);
        self.say(own, REQUEST, 0);
        self.settle();
        assert_eq!(self.ops(to), [REQUEST]);
        self.say(other, RESPONSE, 0);
        self.settle();
        assert_eq!(self.ops(from), [RESPONSE]);
        (own, other)
    }

    /// A request that is answered by a reset.
    pub(super) fn is_refused(&mut self, own: Own) {
        self.say(own, REQUEST, 0);
        self.settle();
        let (header, bytes) = self.next(own.guest);
        assert_eq!((header.op, bytes.len()), (RST, 0));
        assert_eq!((header.src_cid, header.src_port), (own.peer.0.into(), own.peer.1));
        assert_eq!(header.dst_port, own.port);
        assert!(self.drivers.iter().all(|driver| driver.inbox.is_empty()));
    }
}

/// Bytes that differ from place to place.
pub(super) fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at * 31 + (at >> 8) * 7) as u8).collect()
}

impl Rig {
    /// A guest's rings stop and go on, as for a paused VM.
    pub(super) fn pause(&mut self, guest: usize) {
        let tx = self.hub.stop_tx(guest).unwrap();
        let rx = self.hub.stop_rx(guest).unwrap();
        self.start_at(guest, [rx, tx]);
    }

    /// Another hub takes over from this one while a guest stands still.
    pub(super) fn succeed_while_paused(&mut self, guest: usize) {
        let tx = self.hub.stop_tx(guest).unwrap();
        let rx = self.hub.stop_rx(guest).unwrap();
        let streams = self.hub.stop();
        self.take_over(streams);
        for other in (0..self.drivers.len()).filter(|&other| other != guest) {
            self.start(other, Start::Recover);
        }
        self.step();
        self.start_at(guest, [rx, tx]);
    }

    /// A guest starts anew, with rings of its own.
    pub(super) fn restart(&mut self, guest: usize) {
        self.hub.stop_tx(guest);
        self.hub.stop_rx(guest);
        self.drivers[guest] = Driver::new(self.drivers[guest].cid, 4096);
        self.start(guest, Start::At(0));
    }
}
