//! Runs, the fast path: consecutive frames to the same member are handed over in one go.
//!
//! A frame takes this path if it is plain (has no offloads) and has one known, unshaped receiver
//! that gets it unchanged. Nearly every frame does.

use taut_virtq::device::{Run, TxFrame, TxQueue};

use super::{Forwarder, Verdict};
use crate::net::ethernet::{self, MacPair};
use crate::net::vlan::TagEdit;
use crate::port::{Body, RxEnd, RxSlot};
use crate::switch::policy::{self, Route, Routed};
use crate::switch::target::{SPREAD, Target};

impl Forwarder<'_> {
    /// Forwards the first `count` frames of a guest's last look, or fewer if the burst becomes
    /// long.
    ///
    /// Returns the number of frames that are done, and the verdict on the next one. `pieces_done`
    /// is the number of pieces of the first frame that an earlier try has delivered.
    #[inline]
    pub fn forward_burst(
        &mut self,
        queue: &TxQueue,
        count: usize,
        pieces_done: &mut usize,
    ) -> (usize, Verdict) {
        if self.segment.member(self.sender).is_watched() {
            return self.forward_each(queue, count, pieces_done);
        }
        let mut at = 0;
        while at < count {
            at += self.forward_run(queue, at, count);
            if at == count {
                break;
            }
            let (done, verdict) = self.forward_other(queue, at, count, pieces_done);
            at += done;
            if verdict != Verdict::Done {
                return (at, verdict);
            }
            if self.is_long() {
                return (at, Verdict::Done);
            }
        }
        (count, Verdict::Done)
    }

    /// Forwards frame `at` of `count`, which has ended a run, on another path; those behind it as
    /// well if they leave together. Returns as [`Self::forward_burst`] does.
    ///
    /// The frame has ended the run for one of these reasons:
    /// - its receiver is not that of the frames before it;
    /// - its receiver is unknown, not the only one, shaped, watched, or no ring;
    /// - it has an offload or a tag, needs another tag, or is too short or too long;
    /// - it, or the receiver's next buffer, has several parts, or that buffer is too short;
    /// - the receiver has no buffer left, or its ring has a fault.
    #[inline(never)]
    fn forward_other(
        &mut self,
        queue: &TxQueue,
        at: usize,
        count: usize,
        pieces_done: &mut usize,
    ) -> (usize, Verdict) {
        let frame = queue.frame(at);
        let (head, len, header) = (frame.first_bytes(), frame.len(), frame.header());
        let admitted = self.admit(head, len, &header, Body::Guest(&frame));
        if *pieces_done == 0
            && let Ok(Some((passing, route))) = &admitted
            && let Some(leaving) = self.leaving(passing, *route)
        {
            return self.forward_outward(queue, at, count, leaving);
        }
        let verdict = self.forward_admitted(admitted, (head, len, &header, Body::Guest(&frame)), pieces_done);
        (usize::from(verdict == Verdict::Done), verdict)
    }

    /// Does the same as [`Self::forward_burst`] without the fast path: the sender is watched.
    #[cold]
    fn forward_each(&mut self, queue: &TxQueue, count: usize, pieces_done: &mut usize) -> (usize, Verdict) {
        for at in 0..count {
            let frame = queue.frame(at);
            let (head, len, header) = (frame.first_bytes(), frame.len(), frame.header());
            let verdict = self.forward(head, len, &header, Body::Guest(&frame), pieces_done);
            if verdict != Verdict::Done {
                return (at, verdict);
            }
            if self.is_long() {
                return (at + 1, Verdict::Done);
            }
        }
        (count, Verdict::Done)
    }

    /// Hands over the run that begins with frame `first` of `count`, as far as its receiver has
    /// room, and returns the number of frames.
    #[inline]
    fn forward_run(&mut self, queue: &TxQueue, first: usize, count: usize) -> usize {
        let Some(target) = self.fast_target(queue, first) else { return 0 };
        self.lock_queue(target);
        let Some((_, mut slot)) = self.locked.take() else { return 0 };
        let run = self.run_into(&mut slot, target, queue, first, count);
        self.locked = Some((target, slot));
        self.frames += run.frames as u64;
        self.bytes += run.bytes;
        run.frames
    }

    /// The receive queue of a frame on the fast path; `None` for a frame that must take the slow
    /// path.
    ///
    /// A cached answer is found by sender, addresses and type alone. A ground for refusal that
    /// depends on anything else, such as the length or the tag, must be tested here, for every
    /// frame.
    #[inline(always)]
    fn fast_target(&mut self, queue: &TxQueue, at: usize) -> Option<Target> {
        let (start, len) = queue.peek_plain(at)?;
        if !(ethernet::HEADER..=self.longest).contains(&len) {
            return None;
        }
        let macs = MacPair::of(start);
        let target = match self.last {
            Some((last, target)) if last == macs => target,
            _ => match self.work.flow_cache.find(self.port(), macs) {
                Some(target) => target,
                None => return self.look_up(&queue.frame(at), macs),
            },
        };
        // The frame's flow chooses between several pairs.
        Some(if target.pair == SPREAD {
            self.target(target.member, queue.frame(at).first_bytes())
        } else {
            target
        })
    }

    /// Decides whether frames of this sender with these addresses and this type take the fast path,
    /// and caches the answer if they do. See [`Self::fast_target`] for what must not be decided
    /// here.
    #[inline(never)]
    fn look_up(&mut self, frame: &TxFrame<'_>, macs: MacPair) -> Option<Target> {
        let ethernet = ethernet::check(frame.start(), frame.len()).ok()?;
        let routed = policy::route(self.segment, self.sender, &ethernet, self.now).ok()?;
        let Routed { vlan, route: Route::To(member) } = routed else { return None };
        let receiver = self.segment.member(member);
        // The addresses do not include a tag, so the next frame may have another one.
        let as_it_is = ethernet.tag.is_none() && receiver.vlan.egress(vlan, None) == Some(TagEdit::Keep);
        if !as_it_is || self.segment.promiscuous(vlan).any(|other| other != member && other != self.sender) {
            return None;
        }
        if receiver.port.is_paced() || receiver.cut_off || receiver.is_watched() {
            return None;
        }
        let several = receiver.port.receiving().count_ones() > 1;
        let target = self.target(member, frame.first_bytes());
        let decided = if several { Target { pair: SPREAD, ..target } } else { target };
        self.last = Some((macs, decided));
        self.work.flow_cache.insert(self.port(), macs, decided);
        Some(target)
    }

    /// Hands a run to a locked receive queue.
    #[inline]
    fn run_into(
        &mut self,
        slot: &mut RxSlot,
        target: Target,
        queue: &TxQueue,
        first: usize,
        count: usize,
    ) -> Run {
        // A shaped receiver gets frame by frame. Shaping may have begun after the look-up.
        let (Some(RxEnd::Vnic(end)), None) = (&mut slot.end, &slot.paced) else { return Run::default() };
        end.prepare(count - first);
        end.prefetch(0);
        let mut frames = 1;
        while first + frames < count && self.fast_target(queue, first + frames) == Some(target) {
            end.prefetch(frames);
            frames += 1;
        }
        let run = end.put_run(queue, first, frames);
        if run.frames > 0 {
            slot.had_room(self.now);
            slot.fresh.frames += run.frames as u64;
            slot.fresh.bytes += run.bytes;
        }
        run
    }
}
