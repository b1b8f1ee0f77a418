//! The last step to a shaped guest: frames that conform pass, others wait in the queue, in order.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use taut_api::fabric::DropReason;
use taut_virtq::header::NetHeader;

use super::end::RxEnd;
use super::frame::{Body, Frame, Fresh, Put};
use crate::net::ethernet;
use crate::net::software_offload::PLAIN;
use crate::shaping::PAUSE;
use crate::shaping::queue::Queue;
use crate::shaping::shaper::Shaper;
use crate::sys::counters::PortBlock;
use crate::sys::lock::lock;

/// How soon a device that had no room is tried again. A guest's ring tells by a kick.
const RETRY: Duration = Duration::from_millis(1);

/// What stands between the switch and one receive queue of a shaped port. A port that is no longer shaped keeps it,
/// without limits, until the port goes.
#[derive(Debug)]
pub struct Paced {
    /// All receive queues of the port share it. Its lock is the last that a worker takes.
    shaper: Arc<Mutex<Shaper>>,
    queue: Queue,
    /// The queue was empty until now, or stuck: somebody has to come back then.
    due: Option<Instant>,
    /// There was no room when somebody last came.
    stuck: bool,
}

impl Paced {
    /// An empty queue.
    pub fn new(shaper: Arc<Mutex<Shaper>>) -> Self {
        Self { shaper, queue: Queue::default(), due: None, stuck: false }
    }

    /// Hands a frame to `end`, or lets it wait.
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

    /// The same for a finished frame.
    pub fn put_bytes(&mut self, end: &mut RxEnd, bytes: &[u8], now: Instant) -> Put {
        if let Some(put) = self.pass(now, bytes.len(), || end.put_bytes(bytes)) {
            return put;
        }
        let fill = |space: &mut [u8]| {
            space.copy_from_slice(bytes);
            bytes.len()
        };
        self.wait(PLAIN, bytes.len(), now, fill)
    }

    /// Does `put` with a frame that need not wait.
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

    fn wait(
        &mut self,
        header: NetHeader,
        len: usize,
        now: Instant,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Put {
        let first = self.queue.is_empty();
        if self.stuck {
            // A guest that does not kick gets its frames all the same, as long as there are new ones.
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

    /// When somebody has to come back for frames that nobody comes back for yet.
    #[inline]
    pub fn take_due(&mut self) -> Option<Instant> {
        self.due.take()
    }

    /// Hands over what conforms by now, and tells when to come back. Without an `end`, or with a broken one, what waits is
    /// lost.
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
                    // Whoever delivers next meets the same failure, and reports it.
                    drop(shaper);
                    self.lose(counters);
                    return None;
                }
            }
            self.queue.pop();
        }
        None
    }

    /// Hands over whatever there is room for, at any rate: the end is going to be taken out. The rest is lost.
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

    fn lose(&mut self, counters: &PortBlock) {
        for _ in 0..self.queue.clear() {
            counters.drop_at(DropReason::PortDown);
        }
    }
}

fn hand_over(end: &mut RxEnd, header: &NetHeader, bytes: &[u8], fresh: &mut Fresh) -> Put {
    // Checked before it waited; its guest may have taken it back since.
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
