//! Captures and mirrors: those who watch the frames of a port.
//!
//! A capture has each frame once, when its fate is known: a frame that waits for room is recorded
//! when it is delivered or dropped. A mirror has copies of the frames that pass. A receiver's frame
//! is recorded and copied with the tag that the receiver gets, and a frame with offloads as its
//! sender left it: with an unfinished checksum, and longer than the segments that software makes of
//! it.

use taut_api::direction::Direction;
use taut_api::fabric::DropReason;
use taut_virtq::device::FIRST_BYTES;

use super::{Admitted, Forwarder};
use crate::net::ethernet::TAG;
use crate::net::vlan::{EditedStart, TagEdit};
use crate::port::{Body, Frame, Put};
use crate::switch::index::MemberIdx;
use crate::switch::member::Member;

impl Forwarder<'_> {
    /// Has captures record a frame of a watched sender that is done.
    #[cold]
    pub(super) fn record_sent(&mut self, len: usize, body: Body<'_>) {
        let dropped = self.dropped.take();
        let captures = &self.segment.member(self.sender).captures;
        captures.record(Direction::Tx, dropped, len, &|space| body.copy_to(space));
    }

    /// Has captures record a frame of a watched receiver, as the receiver gets it or would have got
    /// it.
    #[cold]
    pub(super) fn record_received(
        &self,
        member: MemberIdx,
        passing: &Admitted<'_>,
        dropped: Option<DropReason>,
    ) {
        let Member { captures, vlan, .. } = self.segment.member(member);
        let frame = &passing.frame;
        let record = |len: usize, copy: &dyn Fn(&mut [u8]) -> usize| {
            captures.record(Direction::Rx, dropped, len, copy);
        };
        let mut space: EditedStart = [0; FIRST_BYTES + TAG];
        match (vlan.egress(passing.vlan, frame.ethernet.tag), frame.body) {
            (None | Some(TagEdit::Keep), body) => record(frame.len, &|out| body.copy_to(out)),
            (Some(edit), Body::Guest(guest)) => {
                let edited = guest.with_start(edit.start(guest.first_bytes(), &mut space));
                record(edited.len(), &|out| edited.copy_to(out));
            }
            (Some(edit), Body::Host(bytes)) => {
                let (start, rest) = bytes.split_at(bytes.len().min(FIRST_BYTES));
                let start = edit.start(start, &mut space);
                record(start.len() + rest.len(), &|out| copy_both(start, rest, out));
            }
        }
    }

    /// Copies a frame of a watched sender, which its policy has passed, to the sender's mirrors.
    #[cold]
    pub(super) fn mirror_sent(&mut self, frame: &Frame<'_>) {
        self.copy_to_mirrors(self.sender, Direction::Tx, frame);
    }

    /// Copies a frame of a watched receiver, which has got it, to the receiver's mirrors.
    #[cold]
    pub(super) fn mirror_received(&mut self, member: MemberIdx, passing: &Admitted<'_>) {
        let Member { mirrors, vlan, .. } = self.segment.member(member);
        if mirrors.is_empty() {
            return;
        }
        let frame = &passing.frame;
        match vlan.egress(passing.vlan, frame.ethernet.tag) {
            None => {}
            Some(TagEdit::Keep) => self.copy_to_mirrors(member, Direction::Rx, frame),
            Some(edit) => {
                self.with_tag(frame, edit, |this, frame| this.copy_to_mirrors(member, Direction::Rx, frame));
            }
        }
    }

    fn copy_to_mirrors(&mut self, of: MemberIdx, direction: Direction, frame: &Frame<'_>) {
        let segment = self.segment;
        for mirror in &segment.member(of).mirrors {
            if mirror.directions.include(direction) {
                self.deliver_copy(mirror.to, frame);
            }
        }
    }

    /// Delivers a copy, or drops it. The port that gets it takes frames of all VLANs, and copies
    /// are not copied again.
    fn deliver_copy(&mut self, to: MemberIdx, frame: &Frame<'_>) {
        let target = self.target(to, frame.first_bytes());
        let dropped = match self.store(target, frame, &mut 0, false) {
            Put::Done | Put::Queued => None,
            Put::NotNow(reason) | Put::Refused(reason) => Some(reason),
            Put::Failed(failure) => {
                self.remove_failed(target, failure);
                Some(DropReason::PortDown)
            }
        };
        let Member { port, captures, .. } = self.segment.member(to);
        if let Some(reason) = dropped {
            port.counters.drop_at(reason);
        }
        captures.record(Direction::Rx, dropped, frame.len, &|space| frame.body.copy_to(space));
    }
}

/// Copies as many bytes of both parts as there is room for, and returns their number.
fn copy_both(start: &[u8], rest: &[u8], out: &mut [u8]) -> usize {
    let first = Body::Host(start).copy_to(out);
    first + Body::Host(rest).copy_to(&mut out[first..])
}
