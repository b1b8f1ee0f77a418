//! A queue's place in its port: what is attached to it, and what belongs to that.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::counters::PortWord;

use super::end::{RxEnd, TxEnd};
use super::frame::Fresh;
use super::paced::Paced;
use crate::lro::Lro;
use crate::sys::counters::PortBlock;
use crate::sys::epoll::Watched;
use crate::wake::timers::Deadline;

/// A transmit queue's place.
#[derive(Debug, Default)]
pub struct TxSlot {
    /// What is attached.
    pub end: Option<TxEnd>,
    /// Its kick, or the device that it reads, where its owner waits.
    pub(super) watch: Option<Watch>,
    /// Pieces of the first frame that its receiver has already got.
    pub pieces_done: usize,
    /// Segments on their way to be merged; empty between bursts, unless a receiver has no room.
    pub lro: Lro,
    /// When a worker looks at it although it is not served.
    pub deadline: Deadline,
}

impl TxSlot {
    /// Its [`deadline`](Self::deadline) has come, or something close to it: does what is due at `now`, and tells when
    /// there will be more.
    pub fn due(&mut self, now: Instant, counters: &PortBlock) -> Option<Instant> {
        match &mut self.end {
            Some(TxEnd::Vnic(end)) => end.notifier().due(now, counters),
            _ => None,
        }
    }
}

/// A receive queue's place.
#[derive(Debug, Default)]
pub struct RxSlot {
    /// What is attached.
    pub end: Option<RxEnd>,
    /// Its kick, where its owner waits.
    pub(super) watch: Option<Watch>,
    /// Since when it has had no room, or no end, for a frame that was there.
    pub full_since: Option<Instant>,
    /// Delivered, but not yet counted and announced.
    pub fresh: Fresh,
    /// When a worker looks at it although nobody delivers.
    pub deadline: Deadline,
    /// Where frames wait, if the port is shaped.
    pub paced: Option<Box<Paced>>,
}

impl RxSlot {
    /// Makes everything delivered visible to the guest, interrupts it if that is due, and counts; tells when an interrupt
    /// will be due.
    #[inline]
    pub fn publish(&mut self, now: Instant, counters: &PortBlock) -> Option<Instant> {
        let later = match &mut self.end {
            Some(RxEnd::Vnic(end)) => end.publish(self.fresh.frames, now, counters),
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

    /// Its [`deadline`](Self::deadline) has come, or something close to it: does what is due at `now`, and tells when
    /// there will be more.
    pub fn due(&mut self, now: Instant, counters: &PortBlock) -> Option<Instant> {
        let paced = self.paced.as_mut();
        let next = paced.and_then(|paced| paced.drain(self.end.as_mut(), &mut self.fresh, now, counters));
        let interrupt = self.publish(now, counters);
        [next, interrupt].into_iter().flatten().min()
    }

    /// Takes out what is attached, and all that belongs to it. What waits for its rate is handed over as far as there is
    /// room.
    pub(super) fn clear(&mut self, counters: &PortBlock) -> Option<RxEnd> {
        let mut paced = self.paced.take();
        if let (Some(paced), Some(end)) = (&mut paced, &mut self.end) {
            paced.flush(end, &mut self.fresh, counters);
        }
        let now = Instant::now();
        self.publish(now, counters);
        let mut end = self.end.take();
        if let Some(RxEnd::Vnic(end)) = &mut end {
            end.notifier().release(now, counters);
        }
        *self = Self { paced, ..Self::default() };
        end
    }
}

type Watch = Watched<Arc<OwnedFd>>;
