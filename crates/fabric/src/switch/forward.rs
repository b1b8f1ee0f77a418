//! From one sender to its receivers: policy, look-up, delivery, counting.
//!
//! A burst opens one receive queue at a time and keeps it open while frames go to the same member. Frames of the simplest
//! kind (nothing left to do in their headers, one known receiver) that follow each other to the same member are a *run*
//! and are handed over in one go; every other frame goes by itself. Queues that got frames are published when the burst
//! ends: indices once, an interrupt if one is due.
//!
//! When a receiver has no room, a unicast frame stays with its sender for up to [`RX_WAIT`]; the sender's later frames
//! wait behind it. A receiver that has had no room for longer loses frames at once, until it makes room again: a guest
//! that stopped reading delays its senders once, not with every frame. The same holds for a port without rings, which
//! may get them in a moment: after a restart, sessions arrive one by one. Copies for many never wait.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use taut_api::fabric::counters::PortWord;
use taut_api::fabric::{DropReason, PortId};
use taut_virtq::device::{FIRST_BYTES, Run, TxFrame, TxQueue};
use taut_virtq::header::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, NetHeader};

use super::ethernet::{self, HEADER, MAX_FRAME, MAX_TAGGED, Stations, TAG};
use super::flow_hash;
use super::policy::{self, Route, Routed};
use super::recent::Recent;
use super::software_offload::{Pieces, check_header};
use super::vlan::{EditedStart, TagEdit};
use super::{Member, Segment};
use crate::lro::Merged;
use crate::port::{Body, Failure, Frame, Put, RxEnd, RxSlot};
use crate::worker::timers::{Timers, Wake};

/// How long a frame waits for room at its receiver: as long as a guest's coalescing may hold an interrupt back.
pub const RX_WAIT: Duration = Duration::from_millis(4);

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

/// A receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Whose.
    pub member: u32,
    /// The pair that it is of; [`SPREAD`] until a frame's flow has told.
    pub pair: u32,
}

/// The receiver has several pairs: each frame's flow decides.
const SPREAD: u32 = u32::MAX;

/// A receiver's end that stopped working during a burst.
#[derive(Debug)]
pub struct Fallen {
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
    recent: &'s mut Recent,
    open: Option<(Target, MutexGuard<'s, RxSlot>)>,
    /// Queues with frames that are not published yet.
    touched: &'s mut Vec<Target>,
    fallen: &'s mut Vec<Fallen>,
    frames: u64,
    bytes: u64,
    /// Addresses and type of the last simple frame, and the queue that it was for.
    last: Option<(Stations, Target)>,
}

impl<'s> Forwarder<'s> {
    /// Begins a burst of `sender`'s at `now`.
    pub fn new(
        segment: &'s Segment,
        sender: u32,
        now: Instant,
        scratch: &'s mut Scratch,
        recent: &'s mut Recent,
        touched: &'s mut Vec<Target>,
        fallen: &'s mut Vec<Fallen>,
    ) -> Self {
        Self {
            segment,
            sender,
            now,
            scratch,
            recent,
            open: None,
            touched,
            fallen,
            frames: 0,
            bytes: 0,
            last: None,
        }
    }

    /// Takes the first `count` frames of a guest's last look where they belong; returns how many have been dealt with,
    /// and what became of the one behind them. `pieces_done` is what an earlier try has delivered of the first.
    #[inline]
    pub fn forward_burst(
        &mut self,
        queue: &TxQueue,
        count: usize,
        pieces_done: &mut usize,
    ) -> (usize, Verdict) {
        let mut at = 0;
        while at < count {
            at += self.run(queue, at, count);
            if at == count {
                break;
            }
            // The first that is not simple, or for whose receiver something else is to be done.
            let frame = queue.frame(at);
            let (head, len, header) = (frame.first_bytes(), frame.len(), frame.header());
            let verdict = self.forward(head, len, &header, Body::Guest(&frame), pieces_done);
            if verdict != Verdict::Done {
                return (at, verdict);
            }
            at += 1;
        }
        (count, Verdict::Done)
    }

    /// Hands over as much of the run that begins with frame `first` of `count` as its receiver takes just so; returns how many
    /// frames.
    #[inline]
    fn run(&mut self, queue: &TxQueue, first: usize, count: usize) -> usize {
        let Some(target) = self.simple(queue, first) else { return 0 };
        self.open(target);
        let Some((_, mut slot)) = self.open.take() else { return 0 };
        let run = self.run_into(&mut slot, target, queue, first, count);
        self.open = Some((target, slot));
        self.frames += run.frames as u64;
        self.bytes += run.bytes;
        run.frames
    }

    #[inline]
    fn run_into(
        &mut self,
        slot: &mut RxSlot,
        target: Target,
        queue: &TxQueue,
        first: usize,
        count: usize,
    ) -> Run {
        // A shaped receiver gets frame by frame; it may be shaped since the look-up.
        let (Some(RxEnd::Vnic(end)), None) = (&mut slot.end, &slot.paced) else { return Run::default() };
        end.prepare(count - first);
        end.expect(0);
        let mut frames = 1;
        while first + frames < count && self.simple(queue, first + frames) == Some(target) {
            end.expect(frames);
            frames += 1;
        }
        let run = end.put_run(queue, first, frames);
        if run.frames > 0 {
            slot.full_since = None;
            slot.fresh.frames += run.frames as u64;
            slot.fresh.bytes += run.bytes;
        }
        run
    }

    /// Which queue a simple frame is for; `None` for one that needs a closer look.
    #[inline(always)]
    fn simple(&mut self, queue: &TxQueue, at: usize) -> Option<Target> {
        let (start, len) = queue.glance(at)?;
        if !(ethernet::HEADER..=MAX_FRAME).contains(&len) {
            return None;
        }
        let stations = Stations::of(start);
        let target = match self.last {
            Some((last, target)) if last == stations => target,
            _ => match self.recent.find(self.port(), stations) {
                Some(target) => target,
                None => return self.look_up(&queue.frame(at), stations),
            },
        };
        // With several pairs, the frame's flow decides.
        Some(if target.pair == SPREAD {
            self.target(target.member, queue.frame(at).first_bytes())
        } else {
            target
        })
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

    #[inline(never)]
    fn look_up(&mut self, frame: &TxFrame<'_>, stations: Stations) -> Option<Target> {
        let ethernet = ethernet::check(frame.start(), frame.len()).ok()?;
        let routed = policy::route(self.segment, self.sender, &ethernet, self.now).ok()?;
        let Routed { vlan, route: Route::To(member) } = routed else { return None };
        let receiver = &self.segment.members[member as usize];
        // A tag is not among the stations: the next frame may have another.
        let as_it_is = ethernet.tag.is_none() && receiver.vlan.egress(vlan, None) == Some(TagEdit::Keep);
        if !as_it_is || self.segment.promiscuous(vlan).any(|other| other != member && other != self.sender) {
            return None;
        }
        if receiver.port.is_paced() {
            return None;
        }
        let several = receiver.port.receiving().count_ones() > 1;
        let target = self.target(member, frame.first_bytes());
        let decided = if several { Target { pair: SPREAD, ..target } } else { target };
        self.last = Some((stations, decided));
        self.recent.insert(self.port(), stations, decided);
        Some(target)
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
                for member in segment.curious(frame.vlan).filter(|&member| member != sender) {
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

    #[inline]
    fn deliver_or_wait(&mut self, member: u32, frame: &Passing<'_>, pieces_done: &mut usize) -> Verdict {
        let target = self.target(member, frame.frame.first_bytes());
        match self.deliver(target, frame, pieces_done) {
            Put::Done | Put::Queued => {}
            Put::NotNow(reason) => {
                let now = self.now;
                let slot = self.open(target);
                let first = slot.full_since.is_none();
                let until = *slot.full_since.get_or_insert(now) + RX_WAIT;
                if now < until {
                    if first {
                        self.segment.members[member as usize].port.counters.add(PortWord::RxWaits, 1);
                    }
                    return Verdict::Wait(until);
                }
                self.drop_at(member, reason);
            }
            Put::Refused(reason) => self.drop_at(member, reason),
            Put::Failed(failure) => self.fall(target, failure),
        }
        Verdict::Done
    }

    fn deliver_or_drop(&mut self, member: u32, frame: &Passing<'_>) {
        let target = self.target(member, frame.frame.first_bytes());
        match self.deliver(target, frame, &mut 0) {
            Put::Done | Put::Queued => {}
            Put::NotNow(reason) | Put::Refused(reason) => self.drop_at(member, reason),
            Put::Failed(failure) => self.fall(target, failure),
        }
    }

    /// An open receive queue; the one opened before is closed.
    #[inline]
    fn open(&mut self, target: Target) -> &mut RxSlot {
        if !matches!(&self.open, Some((opened, _)) if *opened == target) {
            // Closed first: never two at a time.
            self.open = None;
        }
        let (segment, touched) = (self.segment, &mut *self.touched);
        let open = self.open.get_or_insert_with(|| {
            touched.push(target);
            (target, segment.members[target.member as usize].port.rx(target.pair as usize))
        });
        &mut open.1
    }

    /// Hands a frame to a member, with its tag as the member has tags. Whatever the way here, a frame is never given to a
    /// port outside its VLAN.
    #[inline]
    fn deliver(&mut self, target: Target, passing: &Passing<'_>, done: &mut usize) -> Put {
        let vlan = &self.segment.members[target.member as usize].vlan;
        match vlan.egress(passing.vlan, passing.frame.ethernet.tag) {
            Some(TagEdit::Keep) => self.store(target, &passing.frame, done, passing.multicast),
            Some(edit) => self.deliver_edited(target, passing, edit, done),
            None => Put::Refused(DropReason::VlanNotAdmitted),
        }
    }

    /// A guest's frame stays where it is, but for its first bytes.
    fn deliver_edited(
        &mut self,
        target: Target,
        passing: &Passing<'_>,
        edit: TagEdit,
        done: &mut usize,
    ) -> Put {
        let Passing { frame, multicast, .. } = passing;
        let header = edit.header(&frame.header);
        let ethernet = frame.ethernet;
        let mut space: EditedStart = [0; FIRST_BYTES + TAG];
        match frame.body {
            Body::Guest(guest) => {
                let guest = guest.with_start(edit.start(guest.first_bytes(), &mut space));
                let frame = Frame { header, ethernet, len: guest.len(), body: Body::Guest(&guest) };
                self.store(target, &frame, done, *multicast)
            }
            Body::Host(bytes) => {
                let (start, rest) = bytes.split_at(bytes.len().min(FIRST_BYTES));
                let start = edit.start(start, &mut space);
                let len = start.len() + rest.len();
                let mut edited = std::mem::take(&mut self.scratch.edited);
                edited[..start.len()].copy_from_slice(start);
                edited[start.len()..len].copy_from_slice(rest);
                let frame = Frame { header, ethernet, len, body: Body::Host(&edited[..len]) };
                let put = self.store(target, &frame, done, *multicast);
                self.scratch.edited = edited;
                put
            }
        }
    }

    #[inline]
    fn store(&mut self, target: Target, frame: &Frame<'_>, done: &mut usize, multicast: bool) -> Put {
        let ether_type = frame.ethernet.ether_type;
        let now = self.now;
        let slot = self.open(target);
        let Some(end) = &mut slot.end else { return Put::NotNow(DropReason::PortDown) };
        if !end.offloads().take(&frame.header, ether_type) {
            return self.deliver_pieces(target, frame, done, multicast);
        }
        let put = match &mut slot.paced {
            None => end.put(frame),
            Some(paced) => paced.put(end, frame, now),
        };
        if matches!(put, Put::Done) {
            slot.full_since = None;
            slot.fresh.frames += 1;
            slot.fresh.bytes += frame.len as u64;
            slot.fresh.multicast += u64::from(multicast);
        }
        put
    }

    /// The slow path: what the receiver cannot do is done here.
    #[cold]
    fn deliver_pieces(
        &mut self,
        target: Target,
        frame: &Frame<'_>,
        done: &mut usize,
        multicast: bool,
    ) -> Put {
        self.open(target);
        let Some((_, slot)) = &mut self.open else { return Put::NotNow(DropReason::PortDown) };
        let slot = &mut **slot;
        let Some(end) = &mut slot.end else { return Put::NotNow(DropReason::PortDown) };
        let whole = match &frame.body {
            Body::Guest(guest) => {
                let space = &mut self.scratch.whole[..frame.len];
                let copied = guest.copy_to(space);
                &space[..copied]
            }
            Body::Host(bytes) => bytes,
        };
        let pieces = match Pieces::of(whole, &frame.header) {
            Ok(pieces) => pieces,
            Err(reason) => return Put::Refused(reason),
        };
        while *done < pieces.count() {
            let len = pieces.write(*done, &mut self.scratch.piece);
            let piece = &self.scratch.piece[..len];
            let put = match &mut slot.paced {
                None => end.put_bytes(piece),
                Some(paced) => paced.put_bytes(end, piece, self.now),
            };
            match put {
                Put::Done => {}
                Put::Queued => {
                    *done += 1;
                    continue;
                }
                other => return other,
            }
            *done += 1;
            slot.full_since = None;
            slot.fresh.frames += 1;
            slot.fresh.bytes += len as u64;
            slot.fresh.multicast += u64::from(multicast);
        }
        Put::Done
    }

    #[cold]
    fn drop_from_sender(&self, reason: DropReason) {
        self.segment.members[self.sender as usize].port.counters.drop_from(reason);
    }

    #[cold]
    fn drop_at(&self, member: u32, reason: DropReason) {
        self.segment.members[member as usize].port.counters.drop_at(reason);
    }

    /// The receiver's end is taken out; the frame is lost with it.
    #[cold]
    fn fall(&mut self, target: Target, failure: Failure) {
        self.open(target).end = None;
        self.drop_at(target.member, DropReason::PortDown);
        self.fallen.push(Fallen { target, failure });
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
#[path = "forward_tests.rs"]
mod tests;
