//! Delivery of one frame to one member: waiting for room, tags, and offloads that the receiver
//! lacks.
//!
//! If a receiver has no room, a unicast frame stays with its sender for up to [`LONGEST_WAIT`], and
//! the sender's later frames wait behind it. A receiver without room for longer loses frames at
//! once until it makes room again, so a guest that stopped reading delays its senders once, not
//! with every frame. The same holds for a port without rings, because after a restart sessions
//! arrive one by one. Copies for many members never wait. Frames from an uplink wait less
//! ([`wait_budget`](crate::port::wait_budget)).

use std::time::Instant;

use taut_api::fabric::DropReason;
use taut_api::fabric::counters::PortWord;
use taut_virtq::device::FIRST_BYTES;

use super::{Admitted, FailedQueue, Forwarder, Verdict};
use crate::net::ethernet::TAG;
use crate::net::software_offload::Pieces;
use crate::net::vlan::{EditedStart, TagEdit};
use crate::port::wait_budget::LONGEST_WAIT;
use crate::port::{Body, Failure, Frame, Put};
use crate::switch::index::MemberIdx;
use crate::switch::member::Member;
use crate::switch::target::Target;

impl Forwarder<'_> {
    /// Delivers a unicast frame, or lets it wait with its sender.
    #[inline]
    pub(super) fn deliver_or_wait(
        &mut self,
        member: MemberIdx,
        frame: &Admitted<'_>,
        pieces_done: &mut usize,
    ) -> Verdict {
        let target = self.target(member, frame.frame.first_bytes());
        match self.deliver(target, frame, pieces_done) {
            Put::Done | Put::Queued => self.note_delivery(target, frame),
            Put::NotNow(reason) => {
                if let Some(until) = self.wait_for_room(target) {
                    return Verdict::Wait(until);
                }
                self.drop_at(member, reason, frame);
            }
            Put::Refused(reason) => self.drop_at(member, reason, frame),
            Put::Failed(failure) => self.fail(target, failure, frame),
        }
        Verdict::Done
    }

    /// Returns until when a frame waits for which there is no room; `None` if it is dropped now.
    pub(super) fn wait_for_room(&mut self, target: Target) -> Option<Instant> {
        let (now, end_of_waits) = (self.now, self.end_of_waits);
        let slot = self.lock_queue(target);
        let (since, is_first) = slot.has_no_room(now);
        let until = match end_of_waits {
            None => since + LONGEST_WAIT,
            Some(end) => end.min(slot.waits.begin(now)),
        };
        if now < until {
            if is_first {
                self.segment.member(target.member).port.counters.add(PortWord::RxWaits, 1);
            }
            return Some(until);
        }
        if end_of_waits.is_some() {
            slot.waits.give_up(now);
        }
        None
    }

    /// Delivers a copy, or drops it.
    pub(super) fn deliver_or_drop(&mut self, member: MemberIdx, frame: &Admitted<'_>) {
        let target = self.target(member, frame.frame.first_bytes());
        match self.deliver(target, frame, &mut 0) {
            Put::Done | Put::Queued => self.note_delivery(target, frame),
            Put::NotNow(reason) | Put::Refused(reason) => self.drop_at(member, reason, frame),
            Put::Failed(failure) => self.fail(target, failure, frame),
        }
    }

    /// Counts a frame that its receiver has, or its receiver's shaper, and shows it to those who
    /// watch the receiver.
    #[inline]
    fn note_delivery(&mut self, target: Target, frame: &Admitted<'_>) {
        self.count_crossing(target, frame);
        if self.segment.member(target.member).is_watched() {
            self.record_received(target.member, frame, None);
            self.mirror_received(target.member, frame);
        }
    }

    /// Hands a frame to a member with the tag that the member expects.
    ///
    /// A frame never reaches a port outside its VLAN, nor one with a smaller MTU: this is checked
    /// here for every frame. Only copies for mirrors go another way. The kernel checks whole frames
    /// for a card, but not the segments that it cuts.
    #[inline]
    fn deliver(&mut self, target: Target, passing: &Admitted<'_>, done: &mut usize) -> Put {
        let Member { vlan, cut_off, mtu, .. } = self.segment.member(target.member);
        if passing.packet > *mtu {
            return Put::Refused(DropReason::Oversize);
        }
        match vlan.egress(passing.vlan, passing.frame.ethernet.tag) {
            Some(_) if *cut_off => Put::Refused(DropReason::AddressChanged),
            Some(TagEdit::Keep) => self.store(target, &passing.frame, done, passing.multicast),
            Some(edit) => {
                let multicast = passing.multicast;
                self.with_tag(&passing.frame, edit, |this, frame| this.store(target, frame, done, multicast))
            }
            None => Put::Refused(DropReason::VlanNotAdmitted),
        }
    }

    /// Calls `act` with a frame whose tag is edited. Only the first bytes of a guest's frame are
    /// copied.
    pub(super) fn with_tag<R>(
        &mut self,
        frame: &Frame<'_>,
        edit: TagEdit,
        act: impl FnOnce(&mut Self, &Frame<'_>) -> R,
    ) -> R {
        let header = edit.header(&frame.header);
        let ethernet = frame.ethernet;
        let mut space: EditedStart = [0; FIRST_BYTES + TAG];
        match frame.body {
            Body::Guest(guest) => {
                let guest = guest.with_start(edit.start(guest.first_bytes(), &mut space));
                act(self, &Frame { header, ethernet, len: guest.len(), body: Body::Guest(&guest) })
            }
            Body::Host(bytes) => {
                let (start, rest) = bytes.split_at(bytes.len().min(FIRST_BYTES));
                let start = edit.start(start, &mut space);
                let len = start.len() + rest.len();
                let mut edited = std::mem::take(&mut self.work.scratch.edited);
                edited[..start.len()].copy_from_slice(start);
                edited[start.len()..len].copy_from_slice(rest);
                let outcome = act(self, &Frame { header, ethernet, len, body: Body::Host(&edited[..len]) });
                self.work.scratch.edited = edited;
                outcome
            }
        }
    }

    /// Hands a frame to the receiver's end and counts it.
    #[inline]
    pub(super) fn store(
        &mut self,
        target: Target,
        frame: &Frame<'_>,
        done: &mut usize,
        multicast: bool,
    ) -> Put {
        let ether_type = frame.ethernet.ether_type;
        let now = self.now;
        let slot = self.lock_queue(target);
        let Some(end) = &mut slot.end else { return Put::NotNow(DropReason::PortDown) };
        if !end.offloads().take(&frame.header, ether_type) {
            return self.deliver_pieces(target, frame, done, multicast);
        }
        let put = match &mut slot.paced {
            None => end.put(frame),
            Some(paced) => paced.put(end, frame, now),
        };
        if matches!(put, Put::Done) {
            slot.had_room(now);
            slot.fresh.frames += 1;
            slot.fresh.bytes += frame.len as u64;
            slot.fresh.multicast += u64::from(multicast);
        }
        put
    }

    /// Software offload: does for the receiver what it does not accept as an offload.
    #[cold]
    fn deliver_pieces(
        &mut self,
        target: Target,
        frame: &Frame<'_>,
        done: &mut usize,
        multicast: bool,
    ) -> Put {
        self.lock_queue(target);
        let Some((_, slot)) = &mut self.locked else { return Put::NotNow(DropReason::PortDown) };
        let slot = &mut **slot;
        let whole = match &frame.body {
            Body::Guest(guest) => {
                let space = &mut self.work.scratch.whole[..frame.len];
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
            let Some(end) = &mut slot.end else { return Put::NotNow(DropReason::PortDown) };
            self.pieces += 1;
            let len = pieces.write(*done, &mut self.work.scratch.piece);
            let piece = &self.work.scratch.piece[..len];
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
            slot.had_room(self.now);
            slot.fresh.frames += 1;
            slot.fresh.bytes += len as u64;
            slot.fresh.multicast += u64::from(multicast);
        }
        Put::Done
    }

    /// Counts and records a dropped frame at its receiver.
    #[cold]
    fn drop_at(&self, member: MemberIdx, reason: DropReason, frame: &Admitted<'_>) {
        let receiver = self.segment.member(member);
        receiver.port.counters.drop_at(reason);
        if receiver.is_watched() {
            self.record_received(member, frame, Some(reason));
        }
    }

    /// Removes a receiver's end that failed, and drops the frame.
    #[cold]
    fn fail(&mut self, target: Target, failure: Failure, frame: &Admitted<'_>) {
        self.remove_failed(target, failure);
        self.drop_at(target.member, DropReason::PortDown, frame);
    }

    /// Removes a receiver's end that failed, which the worker reports.
    #[cold]
    pub(super) fn remove_failed(&mut self, target: Target, failure: Failure) {
        self.lock_queue(target).end = None;
        self.work.failed.push(FailedQueue { target, failure });
    }
}
