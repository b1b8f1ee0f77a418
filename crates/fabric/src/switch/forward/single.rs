//! One frame by itself: checks, policy, look-up, and the members that get it.

use taut_api::fabric::DropReason;
use taut_api::fabric::counters::PortWord;
use taut_virtq::header::{NEEDS_CSUM, NetHeader};

use super::wire::{on_wire, packet_len};
use super::{Admitted, Forwarder, Verdict};
use crate::net::ethernet::{self, HEADER, TAG};
use crate::net::software_offload::check_header;
use crate::port::{Body, Frame};
use crate::switch::index::MemberIdx;
use crate::switch::policy::{self, Route, Routed};

/// Receivers of an admitted frame; `None` for a frame that is for the fabric itself.
pub(super) type Decision<'f> = Result<Option<(Admitted<'f>, Route)>, DropReason>;

impl Forwarder<'_> {
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
        let admitted = self.admit(head, len, header, body);
        self.forward_admitted(admitted, (head, len, header, body), pieces_done)
    }

    /// Checks a frame and looks up its receivers. Returns `None` if it is for the fabric itself.
    #[inline]
    pub(super) fn admit<'f>(
        &self,
        head: &[u8],
        len: usize,
        header: &NetHeader,
        body: Body<'f>,
    ) -> Decision<'f> {
        let checked = check_header(header, len).and_then(|()| ethernet::check(head, len));
        checked.and_then(|ethernet| {
            if let Some(proof) = self.segment.proof(self.sender, &ethernet, head) {
                // The frame is for the fabric itself.
                self.segment.member(self.sender).port.proofs.add(proof);
                return Ok(None);
            }
            let summed_from =
                if header.flags & NEEDS_CSUM != 0 { header.csum_start.into() } else { usize::MAX };
            if ethernet.tag.is_some() && summed_from < HEADER + TAG {
                return Err(DropReason::BadHeader);
            }
            let packet = packet_len(head, len, header, &ethernet, &body);
            if packet > self.segment.member(self.sender).mtu {
                return Err(DropReason::Oversize);
            }
            let Routed { vlan, route } = policy::route(self.segment, self.sender, &ethernet, self.now)?;
            // Other flags are not a sender's to set, such as "the checksum has been verified".
            let header = NetHeader { flags: header.flags & NEEDS_CSUM, ..*header };
            let frame = Frame { header, ethernet, len, body };
            Ok(Some((Admitted { frame, packet, vlan, multicast: route == Route::All }, route)))
        })
    }

    /// Delivers a frame with these first bytes, length and header as [`Self::admit`] has decided.
    #[inline]
    pub(super) fn forward_admitted(
        &mut self,
        admitted: Decision<'_>,
        (head, len, header, body): (&[u8], usize, &NetHeader, Body<'_>),
        pieces_done: &mut usize,
    ) -> Verdict {
        let verdict = match admitted {
            Ok(Some((frame, route))) => {
                let verdict = self.send(&frame, route, pieces_done);
                if verdict == Verdict::Done && self.segment.member(self.sender).is_watched() {
                    self.mirror_sent(&frame.frame);
                }
                verdict
            }
            Ok(None) => Verdict::Done,
            Err(reason) => {
                self.drop_from_sender(reason);
                Verdict::Done
            }
        };
        if verdict == Verdict::Done {
            *pieces_done = 0;
            self.frames += 1;
            self.bytes += len as u64;
            let from = self.segment.member(self.sender);
            if from.uplink.is_some() {
                from.port.counters.add(PortWord::WireRxBytes, on_wire(head, len, header));
            }
            if from.is_watched() {
                self.record_sent(len, body);
            }
        }
        verdict
    }

    /// Delivers an admitted frame along its route.
    #[inline]
    fn send(&mut self, frame: &Admitted<'_>, route: Route, pieces_done: &mut usize) -> Verdict {
        let (segment, sender) = (self.segment, self.sender);
        let to = frame.frame.ethernet.dst;
        let takes = |member: &MemberIdx| *member != sender && segment.takes(*member, sender, to);
        match route {
            Route::To(member) => {
                if let Verdict::Wait(until) = self.deliver_or_wait(member, frame, pieces_done) {
                    return Verdict::Wait(until);
                }
                self.mirror(frame, Some(member));
            }
            Route::All => {
                let out = segment.way_out(sender, frame.frame.first_bytes());
                if let Some(until) = out.and_then(|uplink| self.wait_for_turn(uplink, frame)) {
                    return Verdict::Turn(until);
                }
                self.hear_statement(frame);
                self.deliver_to_group(frame, takes);
                if let Some(uplink) = out {
                    self.deliver_or_drop(uplink, frame);
                }
            }
            Route::Outside => {
                match segment.way_out(sender, frame.frame.first_bytes()) {
                    Some(uplink) => {
                        if let Some(until) = self.wait_for_turn(uplink, frame) {
                            return Verdict::Turn(until);
                        }
                        if let Verdict::Wait(until) = self.deliver_or_wait(uplink, frame, pieces_done) {
                            return Verdict::Wait(until);
                        }
                    }
                    None => self.drop_from_sender(DropReason::NoUplink),
                }
                for member in segment.flood_targets(frame.vlan).filter(|&member| member != sender) {
                    self.deliver_or_drop(member, frame);
                }
            }
            Route::Unknown => {
                let mut flooded = false;
                for member in segment.flood_targets(frame.vlan).filter(takes) {
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
    fn drop_from_sender(&mut self, reason: DropReason) {
        self.dropped = Some(reason);
        self.segment.member(self.sender).port.counters.drop_from(reason);
    }
}
