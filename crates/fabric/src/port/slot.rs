//! A queue's place in its port: what is attached to it, and what belongs to that.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::counters::PortWord;

use super::frame::{Frame, Put};
use super::{stream, tap, vnic};
use crate::counters::PortBlock;
use crate::epoll::Watched;
use crate::lro::Lro;
use crate::shaping::paced::Paced;
use crate::switch::software_offload::Offloads;
use crate::worker::timers::Deadline;

/// The end from which frames come.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the fast one: no pointer to follow on its way"
)]
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
            Some(TxEnd::Vnic(end)) => end.bell().due(now, counters),
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
            end.bell().release(now, counters);
        }
        *self = Self { paced, ..Self::default() };
        end
    }
}

type Watch = Watched<Arc<OwnedFd>>;
