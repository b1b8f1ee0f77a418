//! Runs to packet sockets: consecutive frames of a guest to one uplink, or to one interface of the
//! host, leave by as few system calls as possible.
//!
//! A frame takes this path if it goes to one packet socket and nowhere else. So a run is sent
//! before any other frame is delivered. Its frames are in the sender's ring, whose memory the
//! kernel reads. If the kernel has no room, the run ends before the frame that waits, and no frame
//! behind it has been delivered. A frame that the kernel refuses is dropped, and those behind it
//! are sent.
//!
//! Network I/O control is asked for each frame, and the frame counts as sent when it joins the run:
//! the question for the next one depends on that. Frames that then wait are given back, because
//! they ask again. A dropped frame has had its turn: if it were given back, a guest could save up
//! turns by frames that the kernel refuses.
//!
//! A run is not interrupted, so runs are short while the time of bursts is limited.

use std::time::Instant;

use taut_api::fabric::DropReason;
use taut_virtq::device::{FIRST_BYTES, TxQueue};

use super::wire::on_wire;
use super::{Admitted, Forwarder, Verdict};
use crate::net::ethernet::TAG;
use crate::net::vlan::{EditedStart, TagEdit};
use crate::port::packet::Head;
use crate::port::{Body, Put, RxEnd, RxSlot};
use crate::switch::policy::Route;
use crate::switch::target::Target;

/// Most frames of a run while the time of bursts is limited.
const FRAMES_AT_ONCE: usize = 16;
/// Bytes with which a run ends while the time of bursts is limited.
const BYTES_AT_ONCE: u64 = 32 << 10;

/// A frame of a run.
#[derive(Debug)]
pub(super) struct Leaving {
    head: Head,
    /// Length in bytes at the sender.
    len: u64,
    /// Length in bytes at the receiver, which may expect another tag.
    sent_len: u64,
    /// Bytes on the wire, if an uplink is the receiver.
    wire: u64,
}

impl AsRef<[u8]> for Leaving {
    fn as_ref(&self) -> &[u8] {
        self.head.as_ref()
    }
}

impl Forwarder<'_> {
    /// Returns where a frame goes on this path, and what is sent first; `None` if it must take
    /// another path.
    pub(super) fn leaving(&mut self, passing: &Admitted<'_>, route: Route) -> Option<(Target, Leaving)> {
        let (segment, sender, vlan) = (self.segment, self.sender, passing.vlan);
        let Body::Guest(frame) = passing.frame.body else { return None };
        let start = frame.first_bytes();
        let member = match route {
            Route::To(member) => member,
            Route::Outside => segment.way_out(sender, start)?,
            Route::All | Route::Unknown | Route::Back => return None,
        };
        let to = segment.member(member);
        let passes = passing.packet <= to.mtu && !to.is_watched();
        if to.port.is_guest() || !passes || frame.is_scattered() {
            return None;
        }
        let has_copies = if route == Route::Outside {
            segment.flood_targets(vlan).any(|other| other != sender)
        } else {
            segment.promiscuous(vlan).any(|other| other != member && other != sender)
        };
        if has_copies {
            return None;
        }
        let ethernet = &passing.frame.ethernet;
        let edit = to.vlan.egress(vlan, ethernet.tag)?;
        let header = edit.header(&passing.frame.header);
        let target = self.target(member, start);
        // A shaped receiver gets frame by frame.
        let RxSlot { end: Some(RxEnd::Packet(end)), paced: None, .. } = self.lock_queue(target) else {
            return None;
        };
        if !end.offloads.take(&header, ethernet.ether_type) {
            return None;
        }
        let mut space: EditedStart = [0; FIRST_BYTES + TAG];
        let edited = if edit == TagEdit::Keep { start } else { edit.start(start, &mut space) };
        let leaving = Leaving {
            head: Head::new(&header, edited),
            len: frame.len() as u64,
            sent_len: frame.with_start(edited).len() as u64,
            wire: to.uplink.map_or(0, |_| on_wire(start, frame.len(), &passing.frame.header)),
        };
        Some((target, leaving))
    }

    /// Sends the run that begins with frame `first` of `count`, which is `leaving` to `target`.
    /// Returns the number of frames that are done, and the verdict on the next one.
    pub(super) fn forward_outward(
        &mut self,
        queue: &TxQueue,
        first: usize,
        count: usize,
        (target, leaving): (Target, Leaving),
    ) -> (usize, Verdict) {
        let mut run = std::mem::take(&mut self.work.leaving);
        let turn = self.gather(queue, first, count, (target, leaving), &mut run);
        let (done, verdict) = self.send_run(queue, first, target, &run);
        let is_sent = done == run.len() && verdict == Verdict::Done;
        run.clear();
        self.work.leaving = run;
        match turn {
            Some(until) if is_sent => (done, Verdict::Turn(until)),
            _ => (done, verdict),
        }
    }

    /// Adds `leaving` and the frames behind it that go to the same target to the run. Returns when
    /// the sender asks again for a turn, if it has none for the frame behind the run.
    ///
    /// That frame is checked and looked up again on the way that it takes then.
    fn gather(
        &mut self,
        queue: &TxQueue,
        first: usize,
        count: usize,
        (target, mut leaving): (Target, Leaving),
        run: &mut Vec<Leaving>,
    ) -> Option<Instant> {
        let mut bytes = 0;
        loop {
            if let Some(until) = self.take_turn(target, leaving.wire) {
                return Some(until);
            }
            bytes += leaving.len;
            run.push(leaving);
            let is_long = self.end.is_some() && (run.len() >= FRAMES_AT_ONCE || bytes >= BYTES_AT_ONCE);
            let at = first + run.len();
            if at == count || is_long {
                return None;
            }
            let frame = queue.frame(at);
            let admitted = self.admit(frame.first_bytes(), frame.len(), &frame.header(), Body::Guest(&frame));
            let Ok(Some((passing, route))) = admitted else { return None };
            leaving = match self.leaving(&passing, route) {
                Some((other, next)) if other == target => next,
                _ => return None,
            };
        }
    }

    /// Sends a run and counts it. Returns as [`Self::forward_outward`] does.
    fn send_run(
        &mut self,
        queue: &TxQueue,
        first: usize,
        target: Target,
        run: &[Leaving],
    ) -> (usize, Verdict) {
        let counters = &self.segment.member(target.member).port.counters;
        let (mut done, mut wire, mut verdict) = (0, 0, Verdict::Done);
        while done < run.len() && verdict == Verdict::Done {
            self.lock_queue(target);
            let Some((_, mut slot)) = self.locked.take() else { break };
            let RxSlot { end: Some(RxEnd::Packet(end)), fresh, .. } = &mut *slot else {
                self.locked = Some((target, slot));
                break;
            };
            let (mut had_room, mut end_of_run) = (false, Put::Done);
            end.put_run(queue, first + done, &run[done..], |count, put| match put {
                Put::Done => {
                    for frame in &run[done..done + count] {
                        fresh.bytes += frame.sent_len;
                        wire += frame.wire;
                    }
                    fresh.frames += count as u64;
                    done += count;
                    had_room = true;
                    true
                }
                Put::Refused(reason) => {
                    counters.drop_at(reason);
                    done += count;
                    true
                }
                other => {
                    end_of_run = other;
                    false
                }
            });
            if had_room {
                slot.had_room(self.now);
            }
            self.locked = Some((target, slot));
            match end_of_run {
                Put::NotNow(reason) => {
                    if let Some(until) = self.wait_for_room(target) {
                        verdict = Verdict::Wait(until);
                    } else {
                        counters.drop_at(reason);
                        done += 1;
                    }
                }
                Put::Failed(failure) => {
                    self.remove_failed(target, failure);
                    counters.drop_at(DropReason::PortDown);
                    done += 1;
                }
                Put::Done | Put::Queued | Put::Refused(_) => {}
            }
        }
        self.frames += done as u64;
        self.bytes += run[..done].iter().map(|frame| frame.len).sum::<u64>();
        if wire != 0 {
            self.count_outward(target, wire);
        }
        let waiting = run[done..].iter().map(|frame| frame.wire).sum::<u64>();
        if waiting != 0 {
            self.give_turn_back(target, waiting);
        }
        (done, verdict)
    }
}
