//! The path of a frame: from one sender to its receivers, by policy, look-up, delivery and
//! counting.
//!
//! A burst locks one receive queue at a time and keeps it while frames go to the same member.
//! Frames of the simplest kind go in runs (`run`). Every other frame goes by itself, to one member
//! or many (`deliver`). When the burst ends, the queues that received frames are published: each
//! ring's index once, with an interrupt if one is due.

mod deliver;
mod run;
mod workspace;

use std::sync::MutexGuard;
use std::time::Instant;

use taut_api::fabric::counters::PortWord;
use taut_api::fabric::{DropReason, PortId};
use taut_virtq::header::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, NetHeader};

use super::index::MemberIdx;
use super::policy::{self, Route, Routed};
use super::segment::{Member, Segment};
use super::target::Target;
use crate::lro::Merged;
use crate::net::ethernet::{self, HEADER, MacPair, TAG};
use crate::net::flow_hash;
use crate::net::software_offload::check_header;
use crate::port::{Body, Frame, RxSlot};
use crate::wake::timers::{Timers, Wake};
pub use workspace::{FailedQueue, Workspace};

/// A frame that has passed its sender's policy.
#[derive(Debug)]
struct Admitted<'a> {
    frame: Frame<'a>,
    /// The frame's VLAN, whatever its tag says.
    vlan: u16,
    /// The frame is for all members of the VLAN.
    multicast: bool,
}

/// The sender's part of a frame's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The frame was delivered or dropped.
    Done,
    /// The frame stays with the sender, until this time at the latest.
    Wait(Instant),
}

/// One sender's burst.
#[derive(Debug)]
pub struct Forwarder<'s> {
    segment: &'s Segment,
    sender: MemberIdx,
    now: Instant,
    work: &'s mut Workspace,
    /// The receive queue that is locked.
    open: Option<(Target, MutexGuard<'s, RxSlot>)>,
    frames: u64,
    bytes: u64,
    /// Addresses and type of the last frame on the fast path, and its queue.
    last: Option<(MacPair, Target)>,
}

impl<'s> Forwarder<'s> {
    /// Begins a burst of `sender` at `now`.
    #[inline]
    pub fn new(segment: &'s Segment, sender: MemberIdx, now: Instant, work: &'s mut Workspace) -> Self {
        Self { segment, sender, now, work, open: None, frames: 0, bytes: 0, last: None }
    }

    /// The sender's port.
    #[inline]
    fn port(&self) -> PortId {
        self.segment.member(self.sender).port.id
    }

    /// The receive queue of `member` for a frame that begins with `head`.
    #[inline]
    fn target(&self, member: MemberIdx, head: &[u8]) -> Target {
        let running = self.segment.member(member).port.receiving();
        Target { member, pair: flow_hash::choose(running, head) }
    }

    /// Tells whether the receiver of this TCP frame accepts it merged with others: only a guest
    /// whose driver says so does.
    pub fn merges(&mut self, frame: &[u8]) -> bool {
        let Some(member) = self.receiver(frame) else { return false };
        let segmentation = if frame[12..14] == [0x08, 0x00] { GSO_TCPV4 } else { GSO_TCPV6 };
        let merged = NetHeader { flags: NEEDS_CSUM, gso_type: segmentation, ..NetHeader::default() };
        let Member { lro, port, .. } = self.segment.member(member);
        if !*lro || !port.is_guest() {
            return false;
        }
        let target = self.target(member, frame);
        self.open(target).end.as_ref().is_some_and(|end| end.offloads().take(&merged, 0))
    }

    /// The only receiver of a frame; `None` if it has several, or none.
    fn receiver(&self, frame: &[u8]) -> Option<MemberIdx> {
        let ethernet = ethernet::check(frame, frame.len()).ok()?;
        match policy::route(self.segment, self.sender, &ethernet, self.now).ok()?.route {
            Route::To(member) => Some(member),
            Route::All | Route::Unknown | Route::Back => None,
        }
    }

    /// Counts a merged frame: one frame at its receiver, its segments at its sender.
    pub fn count_merged(&mut self, merged: &Merged<'_>) {
        let segments = u64::from(merged.segments);
        self.frames += segments - 1;
        self.bytes += merged.repeated as u64;
        if let Some(member) = self.receiver(merged.bytes) {
            let counters = &self.segment.member(member).port.counters;
            counters.add_shared(PortWord::RxMergedFrames, 1);
            counters.add_shared(PortWord::RxMergedSegments, segments);
        }
    }

    /// Checks a frame and delivers it.
    ///
    /// `head` is a private copy of its first bytes, and `pieces_done` the number of pieces that an
    /// earlier try has delivered.
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
            // Other flags are not a sender's to set, such as "the checksum has been verified".
            let header = NetHeader { flags: header.flags & NEEDS_CSUM, ..*header };
            let frame = Frame { header, ethernet, len, body };
            Ok((Admitted { frame, vlan, multicast: route == Route::All }, route))
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

    /// Delivers an admitted frame along its route.
    #[inline]
    fn send(&mut self, frame: &Admitted<'_>, route: Route, pieces_done: &mut usize) -> Verdict {
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
                    flooded |= segment.member(member).learns();
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

    /// Delivers copies to promiscuous members other than `to`.
    #[inline]
    fn mirror(&mut self, frame: &Admitted<'_>, to: Option<MemberIdx>) {
        let (segment, sender) = (self.segment, self.sender);
        for member in segment.promiscuous(frame.vlan) {
            if Some(member) != to && member != sender {
                self.deliver_or_drop(member, frame);
            }
        }
    }

    /// Counts a dropped frame at its sender.
    #[cold]
    fn drop_from_sender(&self, reason: DropReason) {
        self.segment.member(self.sender).port.counters.drop_from(reason);
    }

    /// Ends the burst: publishes the receivers' frames, sets timers for what is due later, and
    /// returns the number of frames.
    pub fn finish(mut self, timers: &mut Timers) -> u64 {
        if let Some((target, mut slot)) = self.open.take() {
            self.publish(target, &mut slot, timers);
            drop(slot);
            // Nearly always this is the only queue.
            self.work.touched.pop_if(|last| *last == target);
        }
        while let Some(target) = self.work.touched.pop() {
            let port = &self.segment.member(target.member).port;
            self.publish(target, &mut port.rx(target.pair), timers);
        }
        if self.frames != 0 {
            let counters = &self.segment.member(self.sender).port.counters;
            counters.add(PortWord::TxFrames, self.frames);
            counters.add(PortWord::TxBytes, self.bytes);
        }
        self.frames
    }

    /// Publishes one receive queue and sets its timers.
    #[inline]
    fn publish(&self, target: Target, slot: &mut RxSlot, timers: &mut Timers) {
        let port = &self.segment.member(target.member).port;
        if let Some(when) = slot.publish(self.now, &port.counters)
            && slot.deadline.request(when)
        {
            timers.set(when, Wake::Receiver(port.id, target.pair));
        }
        if let Some(paced) = &mut slot.paced
            && let Some(when) = paced.take_due()
            && slot.deadline.request(when)
        {
            timers.set(when, Wake::Receiver(port.id, target.pair));
        }
    }
}

#[cfg(test)]
mod tests;
