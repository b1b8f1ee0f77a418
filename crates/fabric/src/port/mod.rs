//! Ports: where frames come from and go to.
//!
//! A [`Port`] lives as long as it is configured; what is attached to it comes and goes. Each of its queues is behind a
//! lock of its own. A worker holds the lock of the transmit queue that it serves for one burst, and within it that of
//! one receive queue at a time, so nothing can wait in a circle; the control thread takes a lock only to put an end in
//! or to take it out. With the ports of a worker its own, locks are uncontended, and a burst shares their cost. When a
//! lock has been taken and the end removed, no worker touches its memory any more: that is the whole protocol.

pub mod stream;
pub mod tap;
pub mod vnic;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use taut_api::fabric::config::PortKind;
use taut_api::fabric::counters::PortWord;
use taut_api::fabric::{DropReason, PortId};
use taut_virtq::device::TxFrame;
use taut_virtq::fault::RingFault;
use taut_virtq::header::NetHeader;
use taut_virtq::memory::GuestMemory;

use crate::counters::PortBlock;
use crate::epoll::{Epoll, EventFlags, set_nonblocking};
use crate::switch::ethernet::Ethernet;
use crate::switch::software_offload::Offloads;
use crate::worker::token;

/// A frame on its way, checked.
#[derive(Debug)]
pub struct Frame<'a> {
    /// What the sender left to be done.
    pub header: NetHeader,
    /// Addresses and type.
    pub ethernet: Ethernet,
    /// Bytes, from the Ethernet header on.
    pub len: usize,
    /// The bytes.
    pub body: Body<'a>,
}

/// Where a frame's bytes are.
#[derive(Debug)]
pub enum Body<'a> {
    /// In the sending guest's memory.
    Guest(&'a TxFrame<'a>),
    /// In ours.
    Host(&'a [u8]),
}

/// What became of a frame at its receiver.
#[derive(Debug)]
pub enum Put {
    /// It is there.
    Done,
    /// It cannot be taken now, and will have been dropped for this reason if that lasts.
    NotNow(DropReason),
    /// It can never be taken.
    Refused(DropReason),
    /// The receiver can take nothing any more.
    Failed(Failure),
}

/// Why an end stopped working.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The guest broke its ring.
    #[error("{0}")]
    Ring(#[from] RingFault),
    /// A device or a peer is gone.
    #[error("{0}")]
    Gone(String),
}

/// The end from which frames come.
#[derive(Debug)]
pub enum TxEnd {
    /// A guest's transmit ring.
    Vnic(vnic::Tx),
    /// A TAP device.
    Tap(tap::Tx),
    /// An emulated card's stream.
    Stream(stream::Tx),
}

/// The end to which frames go.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the fast one: no pointer to follow on its way"
)]
pub enum RxEnd {
    /// A guest's receive ring.
    Vnic(vnic::Rx),
    /// A TAP device.
    Tap(tap::Rx),
    /// An emulated card's stream.
    Stream(stream::Rx),
}

impl RxEnd {
    /// What it takes without help.
    #[inline]
    pub fn offloads(&self) -> Offloads {
        match self {
            Self::Vnic(end) => end.offloads,
            Self::Tap(end) => end.offloads,
            Self::Stream(_) => Offloads::NONE,
        }
    }

    /// Hands over a frame as it is.
    #[inline]
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        match self {
            Self::Vnic(end) => end.put(frame),
            Self::Tap(end) => end.put(frame),
            Self::Stream(end) => end.put(frame),
        }
    }

    /// Hands over a finished frame.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        match self {
            Self::Vnic(end) => end.put_bytes(bytes),
            Self::Tap(end) => end.put_bytes(bytes),
            Self::Stream(end) => end.put_bytes(bytes),
        }
    }
}

/// A transmit queue's place.
#[derive(Debug, Default)]
pub struct TxSlot {
    /// What is attached.
    pub end: Option<TxEnd>,
    /// Pieces of the first frame that its receiver has already got.
    pub pieces_done: usize,
}

/// A receive queue's place.
#[derive(Debug, Default)]
pub struct RxSlot {
    /// What is attached.
    pub end: Option<RxEnd>,
    /// Since when it has had no room, or no end, for a frame that was there.
    pub full_since: Option<Instant>,
    /// Delivered, but not yet counted and announced.
    pub fresh: Fresh,
}

/// Frames delivered since the last [`RxSlot::publish`].
#[derive(Debug, Default, Clone, Copy)]
pub struct Fresh {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
    /// Frames to a group address.
    pub multicast: u64,
}

impl RxSlot {
    /// Makes everything delivered visible to the guest, interrupts it if that is due, and counts.
    #[inline]
    pub fn publish(&mut self, counters: &PortBlock) {
        if self.fresh.frames == 0 {
            return;
        }
        if let Some(RxEnd::Vnic(end)) = &mut self.end
            && end.publish()
        {
            counters.add(PortWord::Interrupts, 1);
        }
        let fresh = std::mem::take(&mut self.fresh);
        counters.add(PortWord::RxFrames, fresh.frames);
        counters.add(PortWord::RxBytes, fresh.bytes);
        if fresh.multicast != 0 {
            counters.add(PortWord::RxMulticast, fresh.multicast);
        }
    }
}

/// A configured port.
#[derive(Debug)]
pub struct Port {
    /// Its number.
    pub id: PortId,
    /// What is at its other end.
    pub kind: PortKind,
    /// Its counters.
    pub counters: PortBlock,
    rx: Box<[Mutex<RxSlot>]>,
    tx: Box<[Mutex<TxSlot>]>,
}

impl Port {
    /// A port with nothing attached.
    pub fn new(id: PortId, kind: PortKind, counters: PortBlock) -> Self {
        let pairs = match kind {
            PortKind::VhostUser { queue_pairs, .. } => usize::from(queue_pairs),
            PortKind::Tap { .. } | PortKind::Stream => 1,
        };
        Self {
            id,
            kind,
            counters,
            rx: (0..pairs).map(|_| Mutex::default()).collect(),
            tx: (0..pairs).map(|_| Mutex::default()).collect(),
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
        self.rx[pair].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The transmit queue of a pair.
    #[inline]
    pub fn tx(&self, pair: usize) -> MutexGuard<'_, TxSlot> {
        self.tx[pair].lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Starts a guest's ring.
    pub fn start_ring(
        &self,
        queue: usize,
        memory: &Arc<GuestMemory>,
        ring: vnic::Ring,
        kicks: &Epoll,
    ) -> Result<(), vnic::StartError> {
        let kick = kicks.watch(Arc::clone(&ring.kick), token::of_queue(self.id, queue), READABLE)?;
        if queue.is_multiple_of(2) {
            let end = RxEnd::Vnic(vnic::Rx::new(memory, ring, kick)?);
            *self.rx(queue / 2) = RxSlot { end: Some(end), ..RxSlot::default() };
        } else {
            let end = TxEnd::Vnic(vnic::Tx::new(memory, ring, kick)?);
            *self.tx(queue / 2) = TxSlot { end: Some(end), ..TxSlot::default() };
        }
        Ok(())
    }

    /// Stops whatever serves a queue; everything delivered is published before. A ring tells its position.
    pub fn stop_ring(&self, queue: usize) -> Option<u16> {
        if queue.is_multiple_of(2) {
            let mut slot = self.rx(queue / 2);
            slot.publish(&self.counters);
            match std::mem::take(&mut *slot).end {
                Some(RxEnd::Vnic(end)) => Some(end.position()),
                _ => None,
            }
        } else {
            match std::mem::take(&mut *self.tx(queue / 2)).end {
                Some(TxEnd::Vnic(end)) => Some(end.position()),
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
                end.set_call(call);
            }
        } else if let Some(TxEnd::Vnic(end)) = &mut self.tx(queue / 2).end {
            end.set_call(call);
        }
    }

    /// Interrupts the guest once per ring: whoever served the rings before may have owed it that.
    pub fn interrupt_all(&self) {
        for pair in 0..self.pairs() {
            if let Some(RxEnd::Vnic(end)) = &self.rx(pair).end {
                end.interrupt();
            }
            if let Some(TxEnd::Vnic(end)) = &self.tx(pair).end {
                end.interrupt();
            }
        }
    }

    /// Attaches a TAP device; `offloads` tells what it was switched to take.
    pub fn attach_tap(&self, fd: OwnedFd, offloads: bool, events: &Epoll) -> io::Result<()> {
        set_nonblocking(&fd)?;
        let device = Arc::new(fd);
        let watched = events.watch(Arc::clone(&device), token::of_queue(self.id, 1), READABLE)?;
        let offloads = if offloads { Offloads::TCP } else { Offloads::NONE };
        *self.rx(0) = RxSlot { end: Some(RxEnd::Tap(tap::Rx::new(device, offloads))), ..RxSlot::default() };
        *self.tx(0) = TxSlot { end: Some(TxEnd::Tap(tap::Tx::new(watched))), ..TxSlot::default() };
        Ok(())
    }

    /// Attaches an emulated card's stream.
    pub fn attach_stream(&self, fd: OwnedFd, events: &Epoll) -> io::Result<()> {
        set_nonblocking(&fd)?;
        let socket = Arc::new(fd);
        let both = READABLE | EventFlags::OUT;
        let watched = events.watch(Arc::clone(&socket), token::of_queue(self.id, 1), both)?;
        *self.rx(0) = RxSlot { end: Some(RxEnd::Stream(stream::Rx::new(socket))), ..RxSlot::default() };
        *self.tx(0) = TxSlot { end: Some(TxEnd::Stream(stream::Tx::new(watched))), ..TxSlot::default() };
        Ok(())
    }
}

/// Edge-triggered: an event is told once, and what was not taken then is not told again and again.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::ET);
