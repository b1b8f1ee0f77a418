//! Ports: where frames come from and go to.
//!
//! A [`Port`] lives as long as it is configured; what is attached to it comes and goes. Each of its queues is behind a
//! lock of its own. A worker holds the lock of the transmit queue that it serves for one burst, from the look at the ring
//! until receivers see the frames: whichever worker serves it, frames of one queue keep their order. Within it the
//! worker holds the lock of one receive queue at a time, so nothing can wait in a circle; the control thread takes a lock
//! only to put an end in or to take it out. A transmit queue has one worker, so its lock is uncontended, and a burst
//! shares its cost. When a lock has been taken and the end removed, no worker touches its memory any more: that is the
//! whole protocol.
//!
//! A pair of queues is *owned* by the worker in whose epoll set its descriptors are watched, and which polls its
//! transmit queue. [`Port::give`] changes that; nothing but waking up depends on it.

mod address;
mod end;
mod frame;
pub mod notifier;
pub mod paced;
mod slot;
pub mod stream;
pub mod tap;
pub mod vnic;
pub mod vnic_device;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use taut_api::Coalescing;
use taut_api::fabric::PortId;
use taut_api::fabric::config::PortKind;
use taut_api::fabric::counters::PortWord;
use taut_api::shaping::Shaping;
use taut_virtq::memory::GuestMemory;

use crate::net::software_offload::Offloads;
use crate::shaping::shaper::Shaper;
use crate::sys::counters::PortBlock;
use crate::sys::epoll::{EventFlags, set_nonblocking};
use crate::sys::lock::lock;
use crate::vhost_user::device::{Ring, StartError};
use crate::wake::mailbox::Mailboxes;
use crate::wake::timers::{Deadline, Timers, Wake};
use crate::wake::token;
pub use address::Address;
pub use end::{RxEnd, TxEnd};
pub use frame::{Body, Failure, Frame, Fresh, Put};
use paced::Paced;
pub use slot::{RxSlot, TxSlot};

/// A configured port.
#[derive(Debug)]
pub struct Port {
    /// Its number.
    pub id: PortId,
    /// What is at its other end.
    pub kind: PortKind,
    /// The address at which it receives, if that may change.
    pub address: Address,
    /// Its counters.
    pub counters: PortBlock,
    rx: Box<[Mutex<RxSlot>]>,
    tx: Box<[Mutex<TxSlot>]>,
    /// The worker that owns each pair.
    owners: Box<[AtomicU8]>,
    /// A bit for each receive queue that runs; written under the queue's lock.
    receiving: AtomicU8,
    /// How its rings are moderated. Only the control thread asks.
    coalescing: Mutex<Coalescing>,
    /// Limits what it sends, once it has been shaped.
    to_switch: OnceLock<Mutex<Shaper>>,
    /// Limits what it receives: [`RxSlot::paced`].
    to_guest: OnceLock<Arc<Mutex<Shaper>>>,
}

impl Port {
    /// A port with nothing attached, nothing shaped and nothing moderated.
    pub fn new(id: PortId, kind: PortKind, counters: PortBlock) -> Self {
        let pairs = match kind {
            PortKind::VhostUser { queue_pairs, .. } => usize::from(queue_pairs),
            PortKind::Tap { .. } | PortKind::Stream => 1,
        };
        // A fabric before this one may have left another.
        counters.set(PortWord::RxQueues, 0);
        Self {
            id,
            kind,
            address: Address::default(),
            counters: counters.for_pairs(pairs),
            rx: (0..pairs).map(|_| Mutex::default()).collect(),
            tx: (0..pairs).map(|_| Mutex::default()).collect(),
            owners: (0..pairs).map(|_| AtomicU8::new(0)).collect(),
            receiving: AtomicU8::new(0),
            coalescing: Mutex::new(Coalescing::Disabled),
            to_switch: OnceLock::new(),
            to_guest: OnceLock::new(),
        }
    }

    /// Is a guest's ring at its other end?
    pub fn is_guest(&self) -> bool {
        matches!(self.kind, PortKind::VhostUser { .. })
    }

    /// Pairs of a receive and a transmit queue.
    pub fn pairs(&self) -> usize {
        self.tx.len()
    }

    /// Queues, both directions together. Even indices receive, odd ones transmit (virtio 1.2, 5.1.2).
    pub fn queues(&self) -> usize {
        2 * self.pairs()
    }

    /// The receive queue of a pair.
    #[inline]
    pub fn rx(&self, pair: usize) -> MutexGuard<'_, RxSlot> {
        lock(&self.rx[pair])
    }

    /// The transmit queue of a pair.
    #[inline]
    pub fn tx(&self, pair: usize) -> MutexGuard<'_, TxSlot> {
        lock(&self.tx[pair])
    }

    /// A bit for each receive queue that runs: a guest may use fewer than it has.
    #[inline]
    pub fn receiving(&self) -> u8 {
        self.receiving.load(Relaxed)
    }

    /// Only the control thread starts and stops queues, each under its lock.
    fn set_receiving(&self, pair: usize, runs: bool) {
        let others = self.receiving() & !(1 << pair);
        let now = others | u8::from(runs) << pair;
        self.receiving.store(now, Relaxed);
        self.counters.set(PortWord::RxQueues, now.into());
    }

    /// Does anything serve the queue of this index?
    pub fn runs(&self, queue: usize) -> bool {
        if queue.is_multiple_of(2) {
            self.rx(queue / 2).end.is_some()
        } else {
            self.tx(queue / 2).end.is_some()
        }
    }

    /// Do frames pass both ways?
    pub fn is_up(&self) -> bool {
        (0..self.pairs()).any(|pair| self.runs(2 * pair) && self.runs(2 * pair + 1))
    }

    /// A receive queue's timer has gone off, its guest has made room, or a ring has been started: what is due is done, and a
    /// timer kept for what is due later.
    pub fn rx_due(&self, pair: usize, when: Instant, now: Instant, timers: &mut Timers) {
        let mut slot = self.rx(pair);
        slot.deadline.went_off(when);
        if let Some(next) = slot.due(now, &self.counters)
            && slot.deadline.ask(next)
        {
            timers.at(next, Wake::Receiver(self.id, pair));
        }
    }

    /// The same for a transmit queue, independent of its being served.
    pub fn tx_due(&self, pair: usize, when: Instant, now: Instant, timers: &mut Timers) {
        let mut slot = self.tx(pair);
        slot.deadline.went_off(when);
        if let Some(next) = slot.due(now, &self.counters)
            && slot.deadline.ask(next)
        {
            timers.at(next, Wake::Sender(self.id, pair));
        }
    }

    /// Whoever kept the timers of a pair is gone: both are looked at.
    pub fn adopt(&self, pair: usize, now: Instant, timers: &mut Timers) {
        self.rx(pair).deadline = Deadline::default();
        self.rx_due(pair, now, now, timers);
        self.tx(pair).deadline = Deadline::default();
        self.tx_due(pair, now, now, timers);
    }

    /// The worker that owns a pair.
    pub fn owner(&self, pair: usize) -> usize {
        usize::from(self.owners[pair].load(Relaxed))
    }

    /// Makes another worker the owner of a pair: from now on its events are told there. Both workers are to be told.
    /// Callers exclude each other.
    pub fn give(&self, pair: usize, to: usize, mailboxes: &Mailboxes) -> io::Result<()> {
        let events = mailboxes.events(to);
        {
            let mut slot = self.tx(pair);
            if let Some(watch) = &mut slot.watch {
                watch.move_to(events)?;
            }
            // Under the lock: a ring that is started after this is watched there.
            self.owners[pair].store(to as u8, Relaxed);
        }
        match &mut self.rx(pair).watch {
            // Where a receive queue's kick is told matters little: it is passed on to whoever waits for room.
            Some(watch) => watch.move_to(events),
            None => Ok(()),
        }
    }

    /// Puts another shaping in force. Memory is taken when a direction is shaped for the first time. Workers are to look
    /// at the port afterwards: what waits may go earlier now.
    pub fn shape(&self, shaping: &Shaping, now: Instant) {
        let set = |shaper: &Mutex<Shaper>, shape| {
            lock(shaper).set(shape, now);
        };
        if shaping.to_switch.is_some() || self.to_switch.get().is_some() {
            set(self.to_switch.get_or_init(Mutex::default), shaping.to_switch);
        }
        if shaping.to_guest.is_none() && self.to_guest.get().is_none() {
            return;
        }
        let shaper = self.to_guest.get_or_init(Arc::default);
        set(shaper, shaping.to_guest);
        for pair in 0..self.pairs() {
            self.rx(pair).paced.get_or_insert_with(|| Box::new(Paced::new(Arc::clone(shaper))));
        }
    }

    /// May frames to it have to wait for their rate?
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.to_guest.get().is_some()
    }

    /// What limits the frames that it sends.
    #[inline]
    pub fn to_switch(&self) -> Option<&Mutex<Shaper>> {
        self.to_switch.get()
    }

    /// Starts a guest's ring.
    pub fn start_ring(
        &self,
        queue: usize,
        memory: &Arc<GuestMemory>,
        ring: Ring,
        mailboxes: &Mailboxes,
    ) -> Result<(), StartError> {
        let (pair, token) = (queue / 2, token::of_queue(self.id, queue));
        let kick = Arc::clone(&ring.kick);
        let coalescing = *lock(&self.coalescing);
        if queue.is_multiple_of(2) {
            let end = RxEnd::Vnic(vnic::Rx::new(memory, ring, coalescing)?);
            let mut slot = self.rx(pair);
            // The old watch goes first: it may be of the same descriptor.
            slot.clear(&self.counters);
            slot.watch = Some(mailboxes.events(self.owner(pair)).watch(kick, token, READABLE)?);
            slot.end = Some(end);
            self.set_receiving(pair, true);
        } else {
            let end = TxEnd::Vnic(vnic::Tx::new(memory, ring, coalescing)?);
            let mut slot = self.tx(pair);
            *slot = TxSlot::default();
            slot.watch = Some(mailboxes.events(self.owner(pair)).watch(kick, token, READABLE)?);
            slot.end = Some(end);
        }
        Ok(())
    }

    /// Stops whatever serves a queue; everything delivered is published before. A ring tells its position.
    pub fn stop_ring(&self, queue: usize) -> Option<u16> {
        if queue.is_multiple_of(2) {
            let mut slot = self.rx(queue / 2);
            self.set_receiving(queue / 2, false);
            match slot.clear(&self.counters) {
                Some(RxEnd::Vnic(end)) => Some(end.position()),
                _ => None,
            }
        } else {
            match std::mem::take(&mut *self.tx(queue / 2)).end {
                Some(TxEnd::Vnic(mut end)) => {
                    end.notifier().release(Instant::now(), &self.counters);
                    Some(end.position())
                }
                _ => None,
            }
        }
    }

    /// Stops everything.
    pub fn stop(&self) {
        for queue in 0..self.queues() {
            self.stop_ring(queue);
        }
    }

    /// Replaces the descriptor by which the guest is interrupted.
    pub fn set_call(&self, queue: usize, call: Option<Arc<OwnedFd>>) {
        if queue.is_multiple_of(2) {
            if let Some(RxEnd::Vnic(end)) = &mut self.rx(queue / 2).end {
                end.notifier().set_call(call);
            }
        } else if let Some(TxEnd::Vnic(end)) = &mut self.tx(queue / 2).end {
            end.notifier().set_call(call);
        }
    }

    /// Interrupts the guest once per ring: whoever served the rings before may have owed it that.
    pub fn interrupt_all(&self) {
        for pair in 0..self.pairs() {
            if let Some(RxEnd::Vnic(end)) = &mut self.rx(pair).end {
                end.notifier().ring();
            }
            if let Some(TxEnd::Vnic(end)) = &mut self.tx(pair).end {
                end.notifier().ring();
            }
        }
    }

    /// Moderates its rings so, those that run and those that will. Its queues are to be looked at, soon.
    pub fn moderate(&self, coalescing: Coalescing) {
        *lock(&self.coalescing) = coalescing;
        for pair in 0..self.pairs() {
            if let Some(RxEnd::Vnic(end)) = &mut self.rx(pair).end {
                end.notifier().moderate(coalescing);
            }
            if let Some(TxEnd::Vnic(end)) = &mut self.tx(pair).end {
                end.moderate(coalescing);
            }
        }
    }

    /// Attaches a TAP device; `offloads` tells what it was switched to take.
    pub fn attach_tap(&self, fd: OwnedFd, offloads: Offloads, mailboxes: &Mailboxes) -> io::Result<()> {
        set_nonblocking(&fd)?;
        let device = Arc::new(fd);
        let rx = RxEnd::Tap(tap::Rx::new(Arc::clone(&device), offloads));
        let tx = TxEnd::Tap(tap::Tx::new(Arc::clone(&device)));
        self.attach(device, READABLE, rx, tx, mailboxes)
    }

    /// Attaches an emulated card's stream.
    pub fn attach_stream(&self, fd: OwnedFd, mailboxes: &Mailboxes) -> io::Result<()> {
        set_nonblocking(&fd)?;
        let socket = Arc::new(fd);
        let rx = RxEnd::Stream(stream::Rx::new(Arc::clone(&socket)));
        let tx = TxEnd::Stream(stream::Tx::new(Arc::clone(&socket)));
        self.attach(socket, READABLE | EventFlags::OUT, rx, tx, mailboxes)
    }

    fn attach(
        &self,
        device: Arc<OwnedFd>,
        flags: EventFlags,
        rx: RxEnd,
        tx: TxEnd,
        mailboxes: &Mailboxes,
    ) -> io::Result<()> {
        {
            let mut slot = self.rx(0);
            slot.clear(&self.counters);
            slot.end = Some(rx);
            self.set_receiving(0, true);
        }
        let mut slot = self.tx(0);
        *slot = TxSlot::default();
        slot.watch =
            Some(mailboxes.events(self.owner(0)).watch(device, token::of_queue(self.id, 1), flags)?);
        slot.end = Some(tx);
        Ok(())
    }
}

/// Edge-triggered: an event is told once, and what was not taken then is not told again and again.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::ET);
