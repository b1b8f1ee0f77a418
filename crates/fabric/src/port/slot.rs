//! The state of one queue of a port: the end attached to it, and everything that belongs to the
//! end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::ForeignFd;
use taut_api::fabric::counters::PortWord;

use super::end::{RxEnd, TxEnd};
use super::frame::Fresh;
use super::network_io::NetworkIo;
use super::paced::Paced;
use super::wait_budget::{ReceiverBudget, UplinkBudget};
use crate::lro::Lro;
use crate::sys::counters::PortBlock;
use crate::sys::epoll::Watched;
use crate::wake::timers::Deadline;

type Watch = Watched<Arc<ForeignFd>>;

/// A transmit queue.
#[derive(Debug, Default)]
pub struct TxSlot {
    /// The attached end.
    pub end: Option<TxEnd>,
    /// The end's kick, or the descriptors of its device, in the owner's epoll set. The owner may
    /// have removed those of a card for a while.
    pub(super) watches: Vec<Watch>,
    /// Number of pieces of the first frame that its receiver already has.
    pub pieces_done: usize,
    /// TCP segments being merged. Empty between bursts, unless a receiver has no room.
    pub lro: Lro,
    /// Time at which a worker looks at the queue even if it does not serve it.
    pub deadline: Deadline,
    /// Waiting time that is left to the frames of an uplink.
    pub waits: UplinkBudget,
}

impl TxSlot {
    /// Has the owner's epoll set watch the descriptors of the end. What is there already is
    /// reported.
    ///
    /// # Errors
    /// The kernel has no memory for a watch.
    pub fn watch(&mut self) -> io::Result<()> {
        self.watches.iter_mut().try_for_each(Watched::arm)
    }

    /// Removes the descriptors from the owner's epoll set, if they are in it. The owner has to look
    /// at the end itself until it calls [`Self::watch`].
    pub fn unwatch(&mut self) {
        self.watches.iter_mut().for_each(Watched::disarm);
    }

    /// Handles what is due at `now`, and returns the time at which more will be due.
    pub fn due(&mut self, now: Instant, counters: &PortBlock) -> Option<Instant> {
        match &mut self.end {
            Some(TxEnd::Vnic(end)) => end.notifier().due(now, counters),
            _ => None,
        }
    }
}

/// A receive queue.
#[derive(Debug, Default)]
pub struct RxSlot {
    /// The attached end.
    pub end: Option<RxEnd>,
    /// The end's kick, in the owner's epoll set.
    pub(super) watch: Option<Watch>,
    /// A second descriptor of the end, for packet sockets. It is in the epoll set only while a
    /// frame waits for room, because the kernel would report room after every frame that has left.
    pub(super) room: Option<Watched<OwnedFd>>,
    /// Time since which the queue has had no room, or no end, for a waiting frame.
    full_since: Option<Instant>,
    /// Waiting time that is left for frames from uplinks.
    pub waits: ReceiverBudget,
    /// Frames that were delivered, but not yet counted and published.
    pub fresh: Fresh,
    /// Time at which a worker looks at the queue even if nobody delivers.
    pub deadline: Deadline,
    /// The queue in which frames wait for their rate, if the port is shaped.
    pub paced: Option<Box<Paced>>,
    /// Network I/O control, if the port is an uplink that has it.
    pub network_io: Option<Box<NetworkIo>>,
}

impl RxSlot {
    /// Creates one of a port's receive queues.
    pub(super) fn one_of(pairs: usize) -> Self {
        Self { waits: ReceiverBudget::one_of(pairs), ..Self::default() }
    }

    /// Notes that the queue has taken a frame at `now`.
    #[inline]
    pub fn had_room(&mut self, now: Instant) {
        if self.full_since.take().is_some() {
            self.has_room_again(now);
        }
    }

    #[cold]
    fn has_room_again(&mut self, now: Instant) {
        self.waits.end(now);
        if let Some(room) = &mut self.room {
            room.disarm();
        }
    }

    /// Notes that the queue has no room for a frame that waits. Returns the time since which this
    /// is so, and whether that is `now`.
    pub fn has_no_room(&mut self, now: Instant) -> (Instant, bool) {
        if let Some(since) = self.full_since {
            return (since, false);
        }
        self.full_since = Some(now);
        if let Some(room) = &mut self.room {
            // Without it, the frame is tried again only at the end of its wait.
            let _ = room.arm();
        }
        (now, true)
    }

    /// Makes delivered frames visible to the guest, interrupts it if that is due, and counts.
    ///
    /// Returns the time at which an interrupt will be due.
    #[inline]
    pub fn publish(&mut self, now: Instant, counters: &PortBlock) -> Option<Instant> {
        let later = match &mut self.end {
            Some(RxEnd::Vnic(end)) => end.publish(self.fresh.frames, now, counters),
            Some(RxEnd::Xdp(end)) => end.publish(now),
            _ => None,
        };
        if self.fresh.frames == 0 {
            return later;
        }
        let fresh = std::mem::take(&mut self.fresh);
        counters.add(PortWord::RxFrames, fresh.frames);
        counters.add(PortWord::RxBytes, fresh.bytes);
        if fresh.multicast != 0 {
            counters.add(PortWord::RxMulticast, fresh.multicast);
        }
        later
    }

    /// Handles what is due at `now`, and returns the time at which more will be due.
    pub fn due(&mut self, now: Instant, counters: &PortBlock) -> Option<Instant> {
        let paced = self.paced.as_mut();
        let next = paced.and_then(|paced| paced.drain(self.end.as_mut(), &mut self.fresh, now, counters));
        if let Some(network_io) = &mut self.network_io {
            network_io.update(now);
        }
        let interrupt = self.publish(now, counters);
        [next, interrupt].into_iter().flatten().min()
    }

    /// Removes the end and everything that belongs to it, and returns the end.
    ///
    /// Frames that wait for their rate are handed over as far as there is room.
    pub(super) fn clear(&mut self, counters: &PortBlock) -> Option<RxEnd> {
        let mut paced = self.paced.take();
        if let (Some(paced), Some(end)) = (&mut paced, &mut self.end) {
            paced.flush(end, &mut self.fresh, counters);
        }
        let now = Instant::now();
        // A guest does not get a new budget by a new ring.
        self.had_room(now);
        self.publish(now, counters);
        let mut end = self.end.take();
        if let Some(RxEnd::Vnic(end)) = &mut end {
            end.notifier().release(now, counters);
        }
        let network_io = self.network_io.take();
        *self = Self { paced, waits: self.waits, network_io, ..Self::default() };
        end
    }
}
