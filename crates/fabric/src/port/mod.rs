//! Ports: sources and destinations of frames.
//!
//! A [`Port`] lives as long as it is configured; what is attached to it comes and goes. A lock
//! protects each of its queues:
//!
//! * A worker holds the lock of the transmit queue that it serves for one burst, from peeking at
//!   the ring until receivers see the frames. Frames of one queue therefore keep their order,
//!   whichever worker serves it. A transmit queue has one worker, so its lock is uncontended.
//! * During a burst the worker holds the lock of one receive queue at a time, so workers cannot
//!   deadlock.
//! * The control thread takes a lock only to put an end into a queue, to remove it, or to hand it a
//!   frame of the fabric itself. Once it has removed an end under the lock, no worker touches that
//!   end's memory any more.
//!
//! A pair of queues is *owned* by the worker that polls its transmit queue and whose epoll set
//! watches its descriptors, except those of busy cards. [`Port::give`] changes the owner; only
//! wake-ups depend on it.

mod address;
mod attach;
pub mod capture;
mod end;
pub mod features;
mod frame;
pub mod network_io;
pub mod notifier;
pub mod paced;
pub mod packet;
mod proofs;
pub mod reservation;
mod settings;
mod slot;
pub mod stream;
pub mod tap;
pub mod vnic;
pub mod vnic_device;
pub mod wait_budget;
pub mod xdp;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use taut_api::Coalescing;
use taut_api::fabric::PortId;
use taut_api::fabric::config::PortKind;
use taut_api::fabric::counters::PortWord;

use crate::net::queue::{Direction, PairIdx, QueueIdx};
use crate::shaping::shaper::Shaper;
use crate::sys::counters::PortBlock;
use crate::sys::lock::lock;
use crate::wake::mailbox::{Mailboxes, WorkerIdx};
use crate::wake::timers::{Deadline, Timers, Wake};
pub use address::Address;
use capture::Captures;
pub use end::{RxEnd, TxEnd};
pub use frame::{Body, Failure, Frame, Fresh, Put};
pub use proofs::Proofs;
use reservation::Reservation;
pub use slot::{RxSlot, TxSlot};

/// A configured port.
#[derive(Debug)]
pub struct Port {
    /// The port's number.
    pub id: PortId,
    /// The kind of the port's other end.
    pub kind: PortKind,
    /// The address at which the port receives, if its guest may change it.
    pub address: Address,
    /// Proofs of the uplink's path.
    pub proofs: Proofs,
    /// The port's counters.
    pub counters: PortBlock,
    rx: Box<[Mutex<RxSlot>]>,
    tx: Box<[Mutex<TxSlot>]>,
    /// The worker that owns each pair: a [`WorkerIdx`].
    owners: Box<[AtomicU8]>,
    /// One bit for each running receive queue; written under the queue's lock.
    receiving: AtomicU8,
    /// Number of starts of the first receive queue.
    first_starts: AtomicU32,
    /// The moderation of the port's rings. Only the control thread locks it.
    coalescing: Mutex<Coalescing>,
    /// Limits what the port sends; present once it has been shaped.
    to_switch: OnceLock<Mutex<Shaper>>,
    /// Limits what the port receives, through [`RxSlot::paced`].
    to_guest: OnceLock<Arc<Mutex<Shaper>>>,
    /// The port is an uplink with [`RxSlot::network_io`].
    has_network_io: AtomicBool,
    /// Captures of the port's frames, for the next switch.
    captures: Mutex<Captures>,
    /// Reservations of the port on uplinks.
    reservation: Mutex<Option<Reservation>>,
}

impl Port {
    /// Creates a port with nothing attached, without shaping and without moderation.
    pub fn new(id: PortId, kind: PortKind, counters: PortBlock) -> Self {
        let pairs = match kind {
            PortKind::VhostUser { queue_pairs, .. } => usize::from(queue_pairs),
            PortKind::Tap { .. } | PortKind::Stream | PortKind::Netdev | PortKind::Uplink => 1,
        };
        // A predecessor of this process may have left another value.
        counters.set(PortWord::RxQueues, 0);
        Self {
            id,
            kind,
            address: Address::default(),
            proofs: Proofs::default(),
            counters: counters.for_pairs(pairs),
            rx: (0..pairs).map(|_| Mutex::new(RxSlot::one_of(pairs))).collect(),
            tx: (0..pairs).map(|_| Mutex::default()).collect(),
            owners: (0..pairs).map(|_| AtomicU8::new(0)).collect(),
            receiving: AtomicU8::new(0),
            first_starts: AtomicU32::new(0),
            coalescing: Mutex::new(Coalescing::Disabled),
            to_switch: OnceLock::new(),
            to_guest: OnceLock::new(),
            has_network_io: AtomicBool::new(false),
            captures: Mutex::default(),
            reservation: Mutex::default(),
        }
    }

    /// Tells whether the port's other end is a guest's ring.
    pub fn is_guest(&self) -> bool {
        matches!(self.kind, PortKind::VhostUser { .. })
    }

    /// Tells whether the port's other end is an interface of the host: an uplink or a netdev port.
    pub fn has_card(&self) -> bool {
        matches!(self.kind, PortKind::Uplink | PortKind::Netdev)
    }

    /// Number of queue pairs.
    pub fn pairs(&self) -> usize {
        self.tx.len()
    }

    /// Number of queues, both directions together.
    pub fn queues(&self) -> usize {
        2 * self.pairs()
    }

    /// Tells whether the port has this pair.
    pub fn has(&self, pair: PairIdx) -> bool {
        pair.index() < self.pairs()
    }

    /// Locks the receive queue of a pair.
    #[inline]
    pub fn rx(&self, pair: PairIdx) -> MutexGuard<'_, RxSlot> {
        lock(&self.rx[pair.index()])
    }

    /// Locks the transmit queue of a pair.
    #[inline]
    pub fn tx(&self, pair: PairIdx) -> MutexGuard<'_, TxSlot> {
        lock(&self.tx[pair.index()])
    }

    /// One bit for each running receive queue: a guest may use fewer queues than it has.
    #[inline]
    pub fn receiving(&self) -> u8 {
        self.receiving.load(Relaxed)
    }

    /// Marks a receive queue as running or not. Only the control thread does so, under the queue's
    /// lock.
    fn set_receiving(&self, pair: PairIdx, runs: bool) {
        let others = self.receiving() & !(1 << pair.0);
        let now = others | u8::from(runs) << pair.0;
        self.receiving.store(now, Relaxed);
        self.counters.set(PortWord::RxQueues, now.into());
        if runs && pair == PairIdx::FIRST {
            self.first_starts.fetch_add(1, Relaxed);
        }
    }

    /// Returns how often the first receive queue was started: a guest that stops and starts it may
    /// do so between two looks.
    pub fn first_starts(&self) -> u32 {
        self.first_starts.load(Relaxed)
    }

    /// Tells whether the queue is running.
    pub fn runs(&self, queue: QueueIdx) -> bool {
        match queue.direction() {
            Direction::Receive => self.rx(queue.pair()).end.is_some(),
            Direction::Transmit => self.tx(queue.pair()).end.is_some(),
        }
    }

    /// Handles what is due at a receive queue, and sets a timer for what is due later.
    ///
    /// Callers: the queue's timer for `when` has expired, the guest added buffers, or the ring
    /// started. Returns `true`, once, if an end that announces no room has room again: the caller
    /// tells all workers.
    pub fn rx_due(&self, pair: PairIdx, when: Instant, now: Instant, timers: &mut Timers) -> bool {
        let mut slot = self.rx(pair);
        slot.deadline.expire(when);
        let next = slot.due(now, &self.counters);
        let turn = slot.network_io.as_mut().and_then(|network_io| network_io.wake_senders(now, timers));
        if let Some(next) = [next, turn].into_iter().flatten().min()
            && slot.deadline.request(next)
        {
            timers.set(next, Wake::Receiver(self.id, pair));
        }
        match &mut slot.end {
            Some(RxEnd::Xdp(end)) => end.has_room_again(),
            _ => false,
        }
    }

    /// Handles what is due at a transmit queue, served or not, and sets a timer for what is due
    /// later.
    pub fn tx_due(&self, pair: PairIdx, when: Instant, now: Instant, timers: &mut Timers) {
        let mut slot = self.tx(pair);
        slot.deadline.expire(when);
        if let Some(next) = slot.due(now, &self.counters)
            && slot.deadline.request(next)
        {
            timers.set(next, Wake::Sender(self.id, pair));
        }
    }

    /// Takes over both timers of a pair from a worker that has ended. Returns as [`Self::rx_due`].
    pub fn adopt(&self, pair: PairIdx, now: Instant, timers: &mut Timers) -> bool {
        self.rx(pair).deadline = Deadline::default();
        let has_room = self.rx_due(pair, now, now, timers);
        self.tx(pair).deadline = Deadline::default();
        self.tx_due(pair, now, now, timers);
        has_room
    }

    /// The worker that owns a pair.
    pub fn owner(&self, pair: PairIdx) -> WorkerIdx {
        WorkerIdx(self.owners[pair.index()].load(Relaxed))
    }

    /// Makes another worker the owner of a pair, so that its events arrive there.
    ///
    /// The caller notifies both workers, and no two callers run at the same time.
    ///
    /// # Errors
    /// The kernel refuses another watch; the owner stays the same unless only a watch of the
    /// receive queue could not be moved.
    pub fn give(&self, pair: PairIdx, to: WorkerIdx, mailboxes: &Mailboxes) -> io::Result<()> {
        let events = mailboxes.events(to);
        {
            let mut slot = self.tx(pair);
            // If one cannot be moved, the owner stays. Events of those that were moved are passed
            // on to it.
            slot.watches.iter_mut().try_for_each(|watch| watch.move_to(events))?;
            // The former owner may have ended the watch of a card, which the next one cannot know.
            // Without a watch, it would never see a frame.
            slot.watch()?;
            // Under the lock: a ring that starts after this is watched by the new owner.
            self.owners[pair.index()].store(to.0, Relaxed);
        }
        let RxSlot { watch, room, .. } = &mut *self.rx(pair);
        // Any worker may handle these: it announces the room to all senders.
        watch.as_mut().map_or(Ok(()), |watch| watch.move_to(events))?;
        room.as_mut().map_or(Ok(()), |room| room.move_to(events))
    }
}
