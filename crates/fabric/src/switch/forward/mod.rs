//! From one sender to its receivers: policy, look-up, delivery, counting.
//!
//! A burst opens one receive queue at a time and keeps it open while frames go to the same member. Frames of the simplest
//! kind go by [`run`]s; every other frame goes by itself, to one member or many ([`deliver`]). Queues that got frames are
//! published when the burst ends: indices once, an interrupt if one is due.

mod deliver;
mod run;

use std::sync::MutexGuard;
use std::time::Instant;

use taut_api::fabric::counters::PortWord;
use taut_api::fabric::{DropReason, PortId};
use taut_virtq::header::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, NetHeader};

use super::flow_cache::FlowCache;
use super::policy::{self, Route, Routed};
use super::target::Target;
use super::{Member, Segment};
use crate::lro::Merged;
use crate::net::ethernet::{self, HEADER, MAX_TAGGED, MacPair, TAG};
use crate::net::flow_hash;
use crate::net::software_offload::check_header;
use crate::port::{Body, Failure, Frame, RxSlot};
use crate::wake::timers::{Timers, Wake};

/// Buffers for the slow path, one set per worker.
#[derive(Debug)]
pub struct Scratch {
    whole: Box<[u8]>,
    piece: Box<[u8]>,
    /// A frame from our own memory with another tag.
    edited: Box<[u8]>,
}

impl Default for Scratch {
    fn default() -> Self {
        let space = || vec![0; MAX_TAGGED].into();
        Self { whole: space(), piece: space(), edited: space() }
    }
}

/// A frame that has passed its sender's policy.
#[derive(Debug)]
struct Passing<'a> {
    frame: Frame<'a>,
    /// The VLAN that it is in, whatever it carries.
    vlan: u16,
    /// Is it for many?
    multicast: bool,
}

/// What became of a frame at its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered or dropped.
    Done,
    /// It stays with the sender; at the latest at this time it is dealt with.
    Wait(Instant),
}

/// A receiver's end that stopped working during a burst.
#[derive(Debug)]
pub struct FailedQueue {
    /// Where.
    pub target: Target,
    /// Why.
    pub failure: Failure,
}

/// One sender's burst.
#[derive(Debug)]
pub struct Forwarder<'s> {
    segment: &'s Segment,
    sender: u32,
    now: Instant,
    scratch: &'s mut Scratch,
    flow_cache: &'s mut FlowCache,
    open: Option<(Target, MutexGuard<'s, RxSlot>)>,
    /// Queues with frames that are not published yet.
    touched: &'s mut Vec<Target>,
    failed: &'s mut Vec<FailedQueue>,
    frames: u64,
    bytes: u64,
    /// Addresses and type of the last simple frame, and the queue that it was for.
    last: Option<(MacPair, Target)>,
}

impl<'s> Forwarder<'s> {
    /// Begins a burst of `sender`'s at `now`.
    pub fn new(
        segment: &'s Segment,
        sender: u32,
        now: Instant,
        scratch: &'s mut Scratch,
        flow_cache: &'s mut FlowCache,
        touched: &'s mut Vec<Target>,
        failed: &'s mut Vec<FailedQueue>,
    ) -> Self {
        Self {
            segment,
            sender,
            now,
            scratch,
            flow_cache,
            open: None,
            touched,
            failed,
            frames: 0,
            bytes: 0,
            last: None,
        }
    }

    /// The sender's port.
    #[inline]
    fn port(&self) -> PortId {
        self.segment.members[self.sender as usize].port.id
    }

    /// The receive queue of `member` for a frame that begins with `head`.
    #[inline]
    fn target(&self, member: u32, head: &[u8]) -> Target {
        let running = self.segment.members[member as usize].port.receiving();
        Target { member, pair: flow_hash::choose(running, head) as u32 }
    }

    /// Does the receiver of this frame take it merged with others, if it is TCP? Only a guest that says so.
    pub fn merges(&mut self, frame: &[u8]) -> bool {
        let Some(member) = self.receiver(frame) else { return false };
        let segmentation = if frame[12..14] == [0x08, 0x00] { GSO_TCPV4 } else { GSO_TCPV6 };
        let merged = NetHeader { flags: NEEDS_CSUM, gso_type: segmentation, ..NetHeader::default() };
        let Member { lro, port, .. } = &self.segment.members[member as usize];
        if !*lro || !port.is_guest() {
            return false;
        }
        let target = self.target(member, frame);
        self.open(target).end.as_ref().is_some_and(|end| end.offloads().take(&merged, 0))
    }

    /// The only member that a frame of this sender's is for.
    fn receiver(&self, frame: &[u8]) -> Option<u32> {
        let ethernet = ethernet::check(frame, frame.len()).ok()?;
        match policy::route(self.segment, self.sender, &ethernet, self.now).ok()?.route {
            Route::To(member) => Some(member),
            Route::All | Route::Unknown | Route::Back => None,
        }
    }

    /// Counts a frame that was made of several at its receiver, and at its sender as what it was made of.
    pub fn count_merged(&mut self, merged: &Merged<'_>) {
        let segments = u64::from(merged.segments);
        self.frames += segments - 1;
        self.bytes += merged.repeated as u64;
        if let Some(member) = self.receiver(merged.bytes) {
            let counters = &self.segment.members[member as usize].port.counters;
            counters.add_shared(PortWord::RxMergedFrames, 1);
            counters.add_shared(PortWord::RxMergedSegments, segments);
        }
    }

    /// Checks a frame and takes it where it belongs. `head` is a private copy of its first bytes, `pieces_done` what an
    /// earlier try has delivered of it.
    #[inline]
    pub fn forward(
        &mut self,
        head: &[u8],
        len: usize,
        header: &NetHeader,
        body: Body<'_>,
        pieces_done: &mut usize,
    ) -> Verdict {
        let checked = check_header(header, len).and_then(|()| ethernet::check(head, len));
        let routed = checked.and_then(|ethernet| {
            let summed_from =
                if header.flags & NEEDS_CSUM != 0 { header.csum_start.into() } else { usize::MAX };
            if ethernet.tag.is_some() && summed_from < HEADER + TAG {
                return Err(DropReason::BadHeader);
            }
            let Routed { vlan, route } = policy::route(self.segment, self.sender, &ethernet, self.now)?;
            // Only what a driver may say; that a checksum has been verified is not for a sender to tell.
            let header = NetHeader { flags: header.flags & NEEDS_CSUM, ..*header };
            let frame = Frame { header, ethernet, len, body };
            Ok((Passing { frame, vlan, multicast: route == Route::All }, route))
        });
        let verdict = match routed {
            Ok((frame, route)) => self.send(&frame, route, pieces_done),
            Err(reason) => {
                self.drop_from_sender(reason);
                Verdict::Done
            }
        };
        if verdict == Verdict::Done {
            *pieces_done = 0;
            self.frames += 1;
            self.bytes += len as u64;
        }
        verdict
    }

    #[inline]
    fn send(&mut self, frame: &Passing<'_>, route: Route, pieces_done: &mut usize) -> Verdict {
        let (segment, sender) = (self.segment, self.sender);
        match route {
            Route::To(member) => {
                if let Verdict::Wait(until) = self.deliver_or_wait(member, frame, pieces_done) {
                    return Verdict::Wait(until);
                }
                self.mirror(frame, Some(member));
            }
            Route::All => {
                for member in segment.in_vlan(frame.vlan).filter(|&member| member != sender) {
                    self.deliver_or_drop(member, frame);
                }
            }
            Route::Unknown => {
                let mut flooded = false;
                for member in segment.flood_targets(frame.vlan).filter(|&member| member != sender) {
                    flooded |= segment.members[member as usize].learns();
                    self.deliver_or_drop(member, frame);
                }
                if !flooded {
                    self.drop_from_sender(DropReason::UnknownUnicast);
                }
            }
            Route::Back => {
                self.mirror(frame, None);
                self.drop_from_sender(DropReason::UnknownUnicast);
            }
        }
        Verdict::Done
    }

    /// Copies for promiscuous members.
    #[inline]
    fn mirror(&mut self, frame: &Passing<'_>, to: Option<u32>) {
        let (segment, sender) = (self.segment, self.sender);
        for member in segment.promiscuous(frame.vlan) {
            if Some(member) != to && member != sender {
                self.deliver_or_drop(member, frame);
            }
        }
    }

    #[cold]
    fn drop_from_sender(&self, reason: DropReason) {
        self.segment.members[self.sender as usize].port.counters.drop_from(reason);
    }

    /// Ends the burst: receivers see their frames, and `timers` learn when there is more to do for them.
    pub fn finish(mut self, timers: &mut Timers) -> u64 {
        if let Some((target, mut slot)) = self.open.take() {
            self.publish(target, &mut slot, timers);
            drop(slot);
            // Nearly always the only one.
            self.touched.pop_if(|last| *last == target);
        }
        while let Some(target) = self.touched.pop() {
            let port = &self.segment.members[target.member as usize].port;
            self.publish(target, &mut port.rx(target.pair as usize), timers);
        }
        if self.frames != 0 {
            let counters = &self.segment.members[self.sender as usize].port.counters;
            counters.add(PortWord::TxFrames, self.frames);
            counters.add(PortWord::TxBytes, self.bytes);
        }
        self.frames
    }

    #[inline]
    fn publish(&self, target: Target, slot: &mut RxSlot, timers: &mut Timers) {
        let port = &self.segment.members[target.member as usize].port;
        if let Some(when) = slot.publish(self.now, &port.counters)
            && slot.deadline.ask(when)
        {
            timers.at(when, Wake::Receiver(port.id, target.pair as usize));
        }
        if let Some(paced) = &mut slot.paced
            && let Some(when) = paced.take_due()
            && slot.deadline.ask(when)
        {
            timers.at(when, Wake::Receiver(port.id, target.pair as usize));
        }
    }
}

#[cfg(test)]
mod tests;
