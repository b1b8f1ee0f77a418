//! A VMCI device: its configuration, its two rings, and what waits for its guest.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use taut_api::fabric::PortId;
use taut_api::fabric::config::SocketConfig;
use taut_api::fabric::counters::{SocketWord, port_base};
use taut_api::vmci::Cid;
use taut_virtq::counters::SharedWords;
use taut_virtq::device::socket::{InFlight, SocketRx, SocketTx};
use taut_virtq::device::{QueueConfig, Start};
use taut_virtq::socket_header::SocketHeader;

use super::connection::Turn;
use super::packets::Places;
use super::polling::Polling;
use crate::sys::epoll::Watched;

/// Packets that a guest may have in its ring without having got them back: more are not taken.
pub(super) const MOST_TAKEN: usize = 256;
/// Resets for packets of no connection that may wait for a guest; with that many it is not listened to.
pub(super) const MOST_REPLIES: usize = 256;

/// The counters of one device.
#[derive(Debug, Clone)]
pub(super) struct Counters {
    words: Arc<SharedWords>,
    base: usize,
}

impl Counters {
    pub(super) fn new(words: &Arc<SharedWords>, port: PortId) -> Self {
        Self { words: Arc::clone(words), base: port_base(port) }
    }

    pub(super) fn add(&self, word: SocketWord, count: u64) {
        let word = &self.words.words()[self.base + word as usize];
        // The thread that serves devices, and whoever holds its lock, are the only writers.
        word.store(word.load(Relaxed).wrapping_add(count), Relaxed);
    }

    pub(super) fn set(&self, word: SocketWord, value: u64) {
        self.set_at(word as usize, value);
    }

    /// Where the guest's transmit ring has stopped, for the next fabric; none while it runs.
    pub(super) fn write_stopped(&self, place: Option<RingPlace>) {
        let words = place.map_or([0; 4], RingPlace::to_words);
        for (at, word) in words.into_iter().enumerate() {
            self.set_at(SocketWord::Stopped as usize + at, word);
        }
    }

    /// What [`Self::write_stopped`] wrote.
    pub(super) fn stopped(&self) -> Option<RingPlace> {
        let first = self.base + SocketWord::Stopped as usize;
        let words = [0, 1, 2, 3].map(|at| self.words.words()[first + at].load(Relaxed));
        RingPlace::from_words(words)
    }

    fn set_at(&self, word: usize, value: u64) {
        self.words.words()[self.base + word].store(value, Relaxed);
    }

    pub(super) fn in_flight(&self) -> InFlight {
        InFlight::new(&self.words, self.base + SocketWord::InFlight as usize)
    }
}

type Kick = Watched<Arc<OwnedFd>>;

/// The guest's transmit ring.
#[derive(Debug)]
pub(super) struct TxRing {
    pub(super) queue: SocketTx,
    pub(super) place: RingPlace,
    pub(super) _kick: Kick,
}

/// The guest's receive ring.
#[derive(Debug)]
pub(super) struct RxRing {
    pub(super) queue: SocketRx,
    pub(super) _kick: Kick,
}

/// From the guest.
#[derive(Debug, Default)]
pub(super) struct Sender {
    pub(super) ring: Option<TxRing>,
    pub(super) call: Option<Arc<OwnedFd>>,
    /// Its packets that wait.
    pub(super) places: Places,
    /// How many there are.
    pub(super) taken: usize,
    /// It is looked at in each round.
    pub(super) awake: bool,
    /// When it last had a packet.
    pub(super) last: Option<Instant>,
    /// For how long it is looked at after that.
    pub(super) polling: Polling,
    /// Something was given back that it has not been shown.
    pub(super) touched: bool,
    /// It is to be interrupted for packets that it has got back.
    pub(super) owes_call: bool,
    /// Where the used ring was when it last was.
    pub(super) called_at: u16,
}

/// To the guest.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    pub(super) ring: Option<RxRing>,
    pub(super) call: Option<Arc<OwnedFd>>,
    /// Flows that have something for it.
    pub(super) turns: VecDeque<Turn>,
    /// Resets for packets that belong to no connection.
    pub(super) replies: VecDeque<SocketHeader>,
    /// It has no buffer, and will kick when it has one.
    pub(super) full: bool,
    /// It is in the list of those with something to do.
    pub(super) listed: bool,
    /// Something was delivered that it has not been shown.
    pub(super) touched: bool,
}

/// A device, without its rings.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) config: SocketConfig,
    pub(super) counters: Counters,
    /// Whom it may talk to. Those whom it may not are found no sooner and no later than such as are not there.
    pub(super) peers: HashMap<Cid, usize>,
    /// Connections with an end here.
    pub(super) connections: u32,
    /// Of those that it asked for, how many nobody has accepted.
    pub(super) half_open: u32,
    /// The transmit ring that its connections belong to; another is that of a guest that has started anew.
    pub(super) stopped: Option<RingPlace>,
    /// When its last violation was told.
    pub(super) told: Option<Instant>,
    /// The next port of the host's that a client connects from.
    pub(super) next_port: u32,
}

/// What tells a ring that goes on from one that was set up anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingPlace {
    size: u16,
    desc: u64,
    avail: u64,
    used: u64,
    /// Where it starts, or has stopped.
    start: Start,
}

impl RingPlace {
    pub(super) fn of(config: &QueueConfig) -> Self {
        let &QueueConfig { size, desc, avail, used, start, .. } = config;
        Self { size, desc, avail, used, start }
    }

    /// Its entries.
    pub(super) fn size(self) -> u16 {
        self.size
    }

    /// It has stopped there.
    pub(super) fn stopped_at(self, position: u16) -> Self {
        Self { start: Start::At(position), ..self }
    }

    /// No ring has no entries.
    fn to_words(self) -> [u64; 4] {
        let Start::At(position) = self.start else { return [0; 4] };
        [u64::from(self.size) << 16 | u64::from(position), self.desc, self.avail, self.used]
    }

    fn from_words([sizes, desc, avail, used]: [u64; 4]) -> Option<Self> {
        let (size, start) = ((sizes >> 16) as u16, Start::At(sizes as u16));
        (size != 0).then_some(Self { size, desc, avail, used, start })
    }
}

impl Guest {
    pub(super) fn new(config: SocketConfig, counters: Counters) -> Self {
        Self {
            config,
            counters,
            peers: HashMap::new(),
            connections: 0,
            half_open: 0,
            stopped: None,
            told: None,
            next_port: FIRST_HOST_PORT,
        }
    }

    /// Its transmit ring has stopped there, or runs.
    pub(super) fn stop(&mut self, place: Option<RingPlace>) {
        self.counters.write_stopped(place);
        self.stopped = place;
    }

    /// One more connection, or one less.
    pub(super) fn count(&mut self, by: i32) {
        self.connections = self.connections.saturating_add_signed(by);
        self.counters.set(SocketWord::Connections, self.connections.into());
    }
}

/// Clients on the host have ports from here on, clear of those that programs choose.
pub(super) const FIRST_HOST_PORT: u32 = 1 << 30;
