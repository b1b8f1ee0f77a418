//! A switch without a thread, driven step by step, and guests that say what they are told to say: for tests, and for fuzzing.

mod check;
mod driver;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_api::fabric::PortId;
use taut_api::fabric::config::{SocketConfig, SocketWorker, WorkerMode};
use taut_api::fabric::counters::{CONNECTION_WORDS, CONNECTIONS, FILE_SIZE, SocketWord, port_base};
use taut_api::vmci::Cid;
use taut_virtq::Start;
use taut_virtq::counters::SharedWords;

pub use self::driver::{Driver, Rings};
use super::engine::{VsockEvent, VsockSwitch};
use super::guest::EventSource;
use super::proto::GuestIdx;
use crate::sys::epoll::EventFlags;
use crate::vhost_user::device::{Ring, RingSetup, StartError};

/// A device of a guest with this context ID (which is its port's number, too), in these domains.
pub fn device(number: u32, domains: &[&str]) -> SocketConfig {
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

/// An empty counters file.
pub fn words() -> Arc<SharedWords> {
    let file = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, FILE_SIZE).unwrap();
    Arc::new(SharedWords::map(file.as_fd(), FILE_SIZE as usize / 8).unwrap())
}

/// A switch, and guests at its devices.
#[derive(Debug)]
pub struct Rig {
    pub(super) switch: VsockSwitch,
    words: Arc<SharedWords>,
    /// The guests, in the order of their configurations at first.
    pub drivers: Vec<Driver>,
    /// The time, as the switch is told.
    pub now: Instant,
    devices: Vec<SocketConfig>,
    ids: Vec<PortId>,
    worker: SocketWorker,
}

impl Rig {
    /// Guests at these devices, all of whose rings run.
    pub fn new(devices: Vec<SocketConfig>, rings: Rings, mode: WorkerMode) -> Self {
        let words = words();
        let drivers = devices.iter().map(|device| Driver::new(device.cid.0, rings)).collect();
        let ids = devices.iter().map(|device| device.id).collect();
        let switch = VsockSwitch::new(&words).unwrap();
        let worker = SocketWorker { mode, cpu: None };
        let mut rig = Self { switch, words, drivers, now: Instant::now(), devices, ids, worker };
        assert_eq!(rig.switch.configure(&rig.devices, &rig.worker), []);
        rig.switch.begin(Vec::new());
        for guest in 0..rig.drivers.len() {
            rig.start_both(guest, [Start::At(0); 2]);
        }
        rig
    }

    /// Makes the devices what they are wanted to be; tells how many could not be.
    pub fn configure(&mut self, devices: Vec<SocketConfig>) -> usize {
        self.devices = devices;
        self.switch.configure(&self.devices, &self.worker).len()
    }

    /// The next switch finds these devices configured.
    pub fn expect_devices(&mut self, devices: Vec<SocketConfig>) {
        self.devices = devices;
    }

    /// The switch's number of a guest's device, if it is there.
    pub(super) fn place(&self, guest: usize) -> Option<GuestIdx> {
        self.switch.guests.by_id(self.ids[guest])
    }

    /// Is a guest's device there?
    pub fn is_there(&self, guest: usize) -> bool {
        self.place(guest).is_some()
    }

    /// Starts queue 0 (receive) or 1 (transmit) of a guest, as its front end would.
    pub fn start(&mut self, guest: usize, queue: usize, start: Start) -> Result<(), StartError> {
        let Some(place) = self.place(guest) else { return Ok(()) };
        let driver = &self.drivers[guest];
        let event = || Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let memory = Arc::clone(driver.ram.memory());
        let setup = RingSetup { memory, config: driver.config(queue, start) };
        let ring = Ring { setup, kick: event(), call: Some(event()) };
        if queue == 0 { self.switch.start_rx(place, ring) } else { self.switch.start_tx(place, ring) }
    }

    pub(super) fn start_both(&mut self, guest: usize, starts: [Start; 2]) {
        for queue in [0, 1] {
            self.start(guest, queue, starts[queue]).unwrap();
        }
    }

    /// Stops a queue of a guest; tells where, if it ran.
    pub fn stop(&mut self, guest: usize, queue: usize) -> Option<u16> {
        let place = self.place(guest)?;
        if queue == 0 { self.switch.stop_rx(place) } else { self.switch.stop_tx(place) }
    }

    /// Does a queue of a guest run?
    pub fn runs(&self, guest: usize, queue: usize) -> bool {
        self.place(guest).is_some_and(|place| match queue {
            0 => self.switch.guests.receivers[place].ring.is_some(),
            _ => self.switch.guests.senders[place].ring.is_some(),
        })
    }

    /// A guest starts anew: with rings that are zeros, and a driver that remembers nothing.
    pub fn restart(&mut self, guest: usize) {
        self.stop(guest, 0);
        self.stop(guest, 1);
        let driver = &mut self.drivers[guest];
        *driver = Driver::new(driver.cid, driver.rings);
        self.start_both(guest, [Start::At(0); 2]);
    }

    /// Nobody is at a guest's device any more.
    pub fn leave(&mut self, guest: usize) {
        self.stop(guest, 0);
        self.stop(guest, 1);
        if let Some(place) = self.place(guest) {
            self.switch.gone(place);
        }
    }

    /// The switch stops in good order; returns the host's sockets.
    pub fn stop_switch(&mut self) -> Vec<(u32, OwnedFd)> {
        self.switch.stop()
    }

    /// Another switch takes the place of this one, which has stopped or was killed. No ring runs yet.
    pub fn take_over(&mut self, streams: Vec<(u32, OwnedFd)>) {
        self.switch = VsockSwitch::new(&self.words).unwrap();
        self.switch.configure(&self.devices, &self.worker);
        self.switch.begin(streams);
    }

    /// Writes into the counters file's table of connections.
    pub fn write_connection(&self, number: usize, word: usize, value: u64) {
        let at = CONNECTIONS + number * CONNECTION_WORDS + word % CONNECTION_WORDS;
        self.words.words()[at].store(value, Relaxed);
    }

    /// A counter of a guest's device.
    pub fn count(&self, guest: usize, word: SocketWord) -> u64 {
        self.words.words()[port_base(self.ids[guest]) + word as usize].load(Relaxed)
    }

    /// What `tautd` has been asked since the last call: by which device, the question's number, and for which port.
    pub fn questions(&mut self) -> Vec<(PortId, u32, u32)> {
        let question = |event| match event {
            VsockEvent::HostConnect { port, request, to } => Some((port, request, to)),
            _ => None,
        };
        std::mem::take(&mut self.switch.events).into_iter().filter_map(question).collect()
    }

    /// `tautd` answers a question.
    pub fn answer(&mut self, port: PortId, request: u32, socket: Option<OwnedFd>) {
        self.switch.host_connected(port, request, socket);
    }

    /// Where programs of the host's connect to a guest.
    pub fn listen(&mut self, guest: usize, listener: OwnedFd) {
        self.switch.host_listener(self.ids[guest], listener).unwrap();
    }

    /// One round of the switch's, and whatever the guests do about it; `true` if there was anything.
    pub fn step(&mut self) -> bool {
        self.now += Duration::from_micros(10);
        for guest in 0..self.drivers.len() {
            let (kicks, place) = (self.drivers[guest].kicks(), self.place(guest));
            let Some(place) = place else { continue };
            if kicks[0] {
                self.on_event(EventSource::ReceiveKick(place), EventFlags::IN);
            }
            if kicks[1] {
                self.on_event(EventSource::TransmitKick(place), EventFlags::IN);
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

    /// Steps until nobody has anything to do.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it never ends");
    }

    /// Checks what must hold between any two steps.
    pub fn check(&mut self) {
        self.switch.check();
    }

    /// Checks that the thread would sleep now, and that nobody waits for it; for [`WorkerMode::Interrupt`].
    pub fn check_rest(&mut self) {
        assert!(self.switch.pause(self.now).is_some(), "it never sleeps");
    }

    /// Checks that nothing is left: all guests have started anew, and have heard of it.
    pub fn check_nothing_left(&mut self) {
        self.switch.check_nothing_left();
    }
}
