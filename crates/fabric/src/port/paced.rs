//! The last step to a shaped guest: conforming frames pass, others wait in a queue, in order.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use taut_api::fabric::DropReason;
use taut_virtq::header::NetHeader;

use super::end::RxEnd;
use super::frame::{Body, Frame, Fresh, Put};
use crate::net::ethernet;
use crate::net::software_offload::NO_OFFLOADS;
use crate::shaping::PAUSE;
use crate::shaping::queue::Queue;
use crate::shaping::shaper::Shaper;
use crate::sys::counters::PortBlock;
use crate::sys::lock::lock;

/// Delay before a device without room is tried again. A guest's ring announces room by a kick.
const RETRY: Duration = Duration::from_millis(1);

/// The shaper and the queue between the switch and one receive queue of a shaped port.
///
/// A port that is no longer shaped keeps it, without limits, until the port is removed.
#[derive(Debug)]
pub struct Paced {
    /// Shared by all receive queues of the port. Its lock is the last one that a worker takes.
    shaper: Arc<Mutex<Shaper>>,
    queue: Queue,
    /// Time at which a worker has to come back, not yet covered by a timer.
    due: Option<Instant>,
    /// The end had no room when the queue was last drained.
    stuck: bool,
}

impl Paced {
    /// Creates an empty queue.
    pub fn new(shaper: Arc<Mutex<Shaper>>) -> Self {
        Self { shaper, queue: Queue::default(), due: None, stuck: false }
    }

    /// Hands a frame to `end`, or queues it.
    pub fn put(&mut self, end: &mut RxEnd, frame: &Frame<'_>, now: Instant) -> Put {
        if let Some(put) = self.pass(now, frame.len, || end.put(frame)) {
            return put;
        }
        let fill = |space: &mut [u8]| match frame.body {
            Body::Guest(guest) => guest.copy_to(space),
            Body::Host(bytes) => {
                space.copy_from_slice(bytes);
                bytes.len()
            }
        };
        self.wait(frame.header, frame.len, now, fill)
    }

    /// Hands a finished frame to `end`, or queues it.
    pub fn put_bytes(&mut self, end: &mut RxEnd, bytes: &[u8], now: Instant) -> Put {
        if let Some(put) = self.pass(now, bytes.len(), || end.put_bytes(bytes)) {
            return put;
        }
        let fill = |space: &mut [u8]| {
            space.copy_from_slice(bytes);
            bytes.len()
        };
        self.wait(NO_OFFLOADS, bytes.len(), now, fill)
    }

    /// Calls `put` for a frame that need not wait. Returns `None` if the frame has to be queued.
    fn pass(&self, now: Instant, len: usize, put: impl FnOnce() -> Put) -> Option<Put> {
        if !self.queue.is_empty() {
            return None;
        }
        let mut shaper = lock(&self.shaper);
        if shaper.conforms(now, len).is_some() {
            return None;
        }
        let put = put();
        if matches!(put, Put::Done) {
            shaper.spend(now, len);
        }
        Some(put)
    }

    /// Queues a frame of up to `len` bytes, which `fill` writes.
    fn wait(
        &mut self,
        header: NetHeader,
        len: usize,
        now: Instant,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Put {
        let first = self.queue.is_empty();
        if self.stuck {
            // Try again with each new frame, in case the guest does not kick.
            self.due = Some(now);
        }
        if !self.queue.push(header, len, fill) {
            return Put::Refused(DropReason::ShaperFull);
        }
        if first {
            self.due = Some(lock(&self.shaper).conforms(now, len).map_or(now, |when| when + PAUSE));
        }
        Put::Queued
    }

    /// The time at which a worker has to come back, if no timer covers it yet.
    #[inline]
    pub fn take_due(&mut self) -> Option<Instant> {
        self.due.take()
    }

    /// Hands over the frames that conform by now, and returns the time at which to come back.
    ///
    /// Without an `end`, or with a broken one, all waiting frames are lost.
    pub fn drain(
        &mut self,
        end: Option<&mut RxEnd>,
        fresh: &mut Fresh,
        now: Instant,
        counters: &PortBlock,
    ) -> Option<Instant> {
        self.due = None;
        self.stuck = false;
        let Some(end) = end else {
            self.lose(counters);
            return None;
        };
        let mut shaper = lock(&self.shaper);
        while let Some((header, bytes)) = self.queue.first() {
            if let Some(when) = shaper.conforms(now, bytes.len()) {
                return Some(when + PAUSE);
            }
            match hand_over(end, header, bytes, fresh) {
                Put::Done | Put::Queued => shaper.spend(now, bytes.len()),
                Put::Refused(reason) => counters.drop_at(reason),
                Put::NotNow(_) => {
                    self.stuck = true;
                    return (!matches!(end, RxEnd::Vnic(_))).then(|| now + RETRY);
                }
                Put::Failed(_) => {
                    // The next delivery meets the same failure and reports it.
                    drop(shaper);
                    self.lose(counters);
                    return None;
                }
            }
            self.queue.pop();
        }
        None
    }

    /// Hands over as many frames as there is room for, at any rate, before the end is removed. The
    /// rest is lost.
    pub fn flush(&mut self, end: &mut RxEnd, fresh: &mut Fresh, counters: &PortBlock) {
        while let Some((header, bytes)) = self.queue.first() {
            match hand_over(end, header, bytes, fresh) {
                Put::Done | Put::Queued => {}
                Put::Refused(reason) => counters.drop_at(reason),
                Put::NotNow(_) | Put::Failed(_) => break,
            }
            self.queue.pop();
        }
        self.lose(counters);
    }

    /// Drops and counts all waiting frames.
    fn lose(&mut self, counters: &PortBlock) {
        for _ in 0..self.queue.clear() {
            counters.drop_at(DropReason::PortDown);
        }
    }
}

/// Hands a queued frame to `end` and counts it in `fresh`.
fn hand_over(end: &mut RxEnd, header: &NetHeader, bytes: &[u8], fresh: &mut Fresh) -> Put {
    // Check it again: the copy may be shorter than the frame that was checked before.
    let ethernet = match ethernet::check(bytes, bytes.len()) {
        Ok(ethernet) => ethernet,
        Err(reason) => return Put::Refused(reason),
    };
    let frame = Frame { header: *header, ethernet, len: bytes.len(), body: Body::Host(bytes) };
    let put = end.put(&frame);
    if matches!(put, Put::Done) {
        fresh.frames += 1;
        fresh.bytes += bytes.len() as u64;
        fresh.multicast += u64::from(ethernet.dst.is_multicast());
    }
    put
}
