//! A switch without a thread, driven step by step, and guests whose drivers send whatever the
//! caller wants: for tests and fuzz targets.

mod check;
mod check_pairs;
mod driver;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use taut_api::fabric::config::{FrontEndRules, SocketConfig, SocketWorker, WorkerMode};
use taut_api::fabric::connections::RecordedConnection;
use taut_api::fabric::counters::{CONNECTION_WORDS, CONNECTIONS, SocketWord, port_base};
use taut_api::fabric::{ForeignFd, PortId};
use taut_api::vmci::Cid;
use taut_queue_pair::dax::DATA_OFFSET;
use taut_queue_pair::{Geometry, Memory, Region};
use taut_virtq::Start;
use taut_virtq::counters::SharedWords;

pub use self::driver::{Driver, Rings};
use super::engine::{VsockEvent, VsockSwitch};
use super::guest::EventSource;
use super::proto::GuestIdx;
use super::queue_pair::{GuestRegion, RegionPlace};
use crate::sys::counters::empty_words;
use crate::sys::epoll::EventFlags;
use crate::sys::event_fd::EventFd;
use crate::vhost_user::device::{Ring, RingSetup, StartError};

/// Configuration of a device in these domains. Its context ID is also the number of its port.
pub fn device(number: u32, domains: &[&str]) -> SocketConfig {
    SocketConfig {
        id: PortId(number as u16),
        owner: format!("vm/{number}/vmci"),
        cid: Cid(number),
        domains: domains.iter().map(|name| name.parse().unwrap()).collect(),
        unrestricted: false,
        connections: 64,
        half_open: 8,
        front_end: FrontEndRules::default(),
        queue_pairs: None,
    }
}

/// A switch with guests at its devices.
#[derive(Debug)]
pub struct Rig {
    pub(super) switch: VsockSwitch,
    words: Arc<SharedWords>,
    /// The guests' drivers, in the order of the first configuration.
    pub drivers: Vec<Driver>,
    /// The time that the switch is given.
    pub now: Instant,
    devices: Vec<SocketConfig>,
    ids: Vec<PortId>,
    worker: SocketWorker,
    /// The descriptor by which all guests are interrupted. Nobody reads it.
    call: Arc<EventFd>,
    /// The files of the guests' regions, and the lengths of the regions.
    regions: Vec<Option<(OwnedFd, u64)>>,
}

/// Makes an eventfd that does not block.
fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

impl Rig {
    /// Creates a switch with a guest at each of these devices. All rings run.
    pub fn new(devices: Vec<SocketConfig>, rings: Rings, mode: WorkerMode) -> Self {
        let words = empty_words();
        let drivers = devices.iter().map(|device| Driver::new(device.cid.0, rings)).collect();
        let ids = devices.iter().map(|device| device.id).collect();
        let switch = VsockSwitch::new(&words).unwrap();
        let worker = SocketWorker { mode, cpu: None };
        let call = Arc::new(ForeignFd::own(event()).into());
        let regions = devices.iter().map(|_| None).collect();
        let now = Instant::now();
        let mut rig = Self { switch, words, drivers, now, devices, ids, worker, call, regions };
        assert_eq!(rig.switch.configure(&rig.devices, &rig.worker), []);
        rig.switch.begin(Vec::new(), rig.now);
        for guest in 0..rig.drivers.len() {
            rig.start_both(guest, [Start::At(0); 2]);
        }
        rig
    }

    /// Changes the configuration of the devices. Returns how many were refused.
    pub fn configure(&mut self, devices: Vec<SocketConfig>) -> usize {
        self.devices = devices;
        self.switch.configure(&self.devices, &self.worker).len()
    }

    /// Sets the devices with which the next switch is configured.
    pub fn expect_devices(&mut self, devices: Vec<SocketConfig>) {
        self.devices = devices;
    }

    /// The switch's index of a guest's device, if the device is configured.
    pub(super) fn index(&self, guest: usize) -> Option<GuestIdx> {
        self.switch.guests.by_id(self.ids[guest])
    }

    /// Tells whether a guest's device is configured.
    pub fn is_there(&self, guest: usize) -> bool {
        self.index(guest).is_some()
    }

    /// Starts queue 0 (receive) or 1 (transmit) of a guest, as its front end would.
    pub fn start(&mut self, guest: usize, queue: usize, start: Start) -> Result<(), StartError> {
        let Some(index) = self.index(guest) else { return Ok(()) };
        let driver = &self.drivers[guest];
        let memory = Arc::clone(driver.ram.memory());
        let setup = RingSetup { memory, config: driver.config(queue, start) };
        let ring =
            Ring { setup, kick: Arc::new(ForeignFd::own(event())), call: Some(Arc::clone(&self.call)) };
        if queue == 0 { self.switch.start_rx(index, ring) } else { self.switch.start_tx(index, ring) }
    }

    pub(super) fn start_both(&mut self, guest: usize, starts: [Start; 2]) {
        for queue in [0, 1] {
            self.start(guest, queue, starts[queue]).unwrap();
        }
    }

    /// Stops a queue of a guest. Returns its position if it ran.
    pub fn stop(&mut self, guest: usize, queue: usize) -> Option<u16> {
        let index = self.index(guest)?;
        if queue == 0 { self.switch.stop_rx(index) } else { self.switch.stop_tx(index) }
    }

    /// Tells whether a queue of a guest runs.
    pub fn runs(&self, guest: usize, queue: usize) -> bool {
        self.index(guest).is_some_and(|index| match queue {
            0 => self.switch.guests.receivers[index].ring.is_some(),
            _ => self.switch.guests.senders[index].ring.is_some(),
        })
    }

    /// Restarts a guest, with zeroed rings and a new driver.
    pub fn restart(&mut self, guest: usize) {
        self.stop(guest, 0);
        self.stop(guest, 1);
        let driver = &mut self.drivers[guest];
        *driver = Driver::new(driver.cid, driver.rings);
        self.start_both(guest, [Start::At(0); 2]);
    }

    /// Stops a guest's rings and tells the switch that the front end is gone.
    pub fn leave(&mut self, guest: usize) {
        self.stop(guest, 0);
        self.stop(guest, 1);
        if let Some(index) = self.index(guest) {
            self.switch.gone(index);
        }
    }

    /// Stops the switch in an orderly way. Returns the host's sockets.
    pub fn stop_switch(&mut self) -> Vec<(u32, OwnedFd)> {
        self.switch.stop()
    }

    /// Replaces the switch, which was stopped or counts as killed, by another one. No ring runs
    /// yet.
    pub fn take_over(&mut self, streams: Vec<(u32, OwnedFd)>) {
        self.switch = VsockSwitch::new(&self.words).unwrap();
        self.switch.configure(&self.devices, &self.worker);
        (0..self.regions.len()).for_each(|guest| self.announce_region(guest));
        self.switch.begin(streams, self.now);
    }

    /// Gives a guest a new region of `len` bytes, whose channels are all free.
    pub fn give_region(&mut self, guest: usize, len: u64) {
        let file = memfd_create("region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, DATA_OFFSET + len).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
        self.regions[guest] = Some((file, len));
        self.announce_region(guest);
    }

    /// Tells the switch of a guest's region, as `tautd` does.
    pub fn announce_region(&mut self, guest: usize) {
        if let Some((file, len)) = &self.regions[guest] {
            let ring_len = Some(Geometry::of(*len).unwrap().ring_len());
            let place = RegionPlace { offset: DATA_OFFSET, len: *len, ring_len };
            let id = self.ids[guest];
            if !self.switch.has_region(id, file, place) {
                self.switch.set_region(id, GuestRegion::map(file, place).unwrap());
            }
        }
    }

    /// Takes the region from a guest.
    pub fn remove_region(&mut self, guest: usize) {
        self.regions[guest] = None;
        self.switch.remove_region(self.ids[guest]);
    }

    /// Has the next switch not be told of a guest's region.
    pub fn forget_region(&mut self, guest: usize) {
        self.regions[guest] = None;
    }

    /// A guest's region, as its programs map it.
    pub fn region(&self, guest: usize) -> Region {
        let (file, len) = self.regions[guest].as_ref().expect("the guest has a region");
        let memory = Memory::map(file.as_fd(), DATA_OFFSET, *len as usize).unwrap();
        Region::new(Arc::new(memory), Geometry::of(*len).unwrap()).unwrap()
    }

    /// Writes a word of a connection in the counters file.
    pub fn write_connection(&self, number: usize, word: usize, value: u64) {
        let at = CONNECTIONS + number * CONNECTION_WORDS + word % CONNECTION_WORDS;
        self.words.words()[at].store(value, Relaxed);
    }

    /// The connections that any process can read in the counters file.
    pub fn connections(&self) -> Vec<RecordedConnection> {
        let words = &self.words.words()[CONNECTIONS..];
        let read = words.chunks_exact(CONNECTION_WORDS).skip(1).filter_map(|words| {
            let words: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
            RecordedConnection::from_words(&words.try_into().unwrap())
        });
        read.collect()
    }

    /// A counter of a guest's device.
    pub fn count(&self, guest: usize, word: SocketWord) -> u64 {
        self.words.words()[port_base(self.ids[guest]) + word as usize].load(Relaxed)
    }

    /// Takes the questions for `tautd` since the last call: the device, the question's number, and
    /// the port of the host.
    pub fn questions(&mut self) -> Vec<(PortId, u32, u32)> {
        let question = |event| match event {
            VsockEvent::HostConnect { port, request, to } => Some((port, request, to)),
            _ => None,
        };
        std::mem::take(&mut self.switch.events).into_iter().filter_map(question).collect()
    }

    /// Answers a question as `tautd` does.
    pub fn answer(&mut self, port: PortId, request: u32, socket: Option<OwnedFd>) {
        self.switch.host_connected(port, request, socket);
    }

    /// Sets the socket at which programs on the host connect to a guest.
    pub fn listen(&mut self, guest: usize, listener: OwnedFd) {
        self.switch.host_listener(self.ids[guest], listener).unwrap();
    }

    /// Runs one round of the switch and lets the guests take what has arrived. Returns `true` if
    /// there was anything to do.
    pub fn step(&mut self) -> bool {
        self.now += Duration::from_micros(10);
        for guest in 0..self.drivers.len() {
            let (kicks, index) = (self.drivers[guest].kicks(), self.index(guest));
            let Some(index) = index else { continue };
            if kicks[0] {
                self.on_event(EventSource::ReceiveKick(index), EventFlags::IN);
            }
            if kicks[1] {
                self.on_event(EventSource::TransmitKick(index), EventFlags::IN);
            }
        }
        let mut ready = Vec::new();
        self.switch.epoll.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        for &(token, flags) in &ready {
            if let Some(source) = EventSource::from_token(token) {
                self.on_event(source, flags);
            }
        }
        let mut worked = self.switch.round(self.now) || !ready.is_empty();
        for driver in &mut self.drivers {
            worked |= driver.receive();
        }
        worked
    }

    /// Hands an event to the switch.
    pub(super) fn on_event(&mut self, source: EventSource, flags: EventFlags) {
        self.switch.on_event(source, flags, self.now);
    }

    /// Steps until neither the switch nor a guest has anything to do.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the switch never comes to rest");
    }

    /// Checks the switch's invariants.
    pub fn check(&mut self) {
        self.switch.check();
    }

    /// Checks that the thread would sleep now, in [`WorkerMode::Interrupt`].
    pub fn check_rest(&mut self) {
        assert!(self.switch.pause(self.now).is_some(), "the thread never sleeps");
    }

    /// Checks that no connection is left, after all guests have been restarted and have received
    /// what there was.
    pub fn check_nothing_left(&mut self) {
        self.switch.check_nothing_left();
    }
}
