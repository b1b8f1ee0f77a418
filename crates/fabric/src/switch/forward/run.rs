//! Runs: frames of the simplest kind (nothing left to do in their headers, one known receiver) that follow each other to
//! the same member, and are handed over in one go. This is the path that nearly every frame takes.

use taut_virtq::device::{Run, TxFrame, TxQueue};

use super::{Forwarder, Verdict};
use crate::net::ethernet::{self, MAX_FRAME, MacPair};
use crate::net::vlan::TagEdit;
use crate::port::{Body, RxEnd, RxSlot};
use crate::switch::policy::{self, Route, Routed};
use crate::switch::target::{SPREAD, Target};

impl Forwarder<'_> {
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
        end.prefetch(0);
        let mut frames = 1;
        while first + frames < count && self.simple(queue, first + frames) == Some(target) {
            end.prefetch(frames);
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
        let (start, len) = queue.peek_plain(at)?;
        if !(ethernet::HEADER..=MAX_FRAME).contains(&len) {
            return None;
        }
        let macs = MacPair::of(start);
        let target = match self.last {
            Some((last, target)) if last == macs => target,
            _ => match self.flow_cache.find(self.port(), macs) {
                Some(target) => target,
                None => return self.look_up(&queue.frame(at), macs),
            },
        };
        // With several pairs, the frame's flow decides.
        Some(if target.pair == SPREAD {
            self.target(target.member, queue.frame(at).first_bytes())
        } else {
            target
        })
    }

    #[inline(never)]
    fn look_up(&mut self, frame: &TxFrame<'_>, macs: MacPair) -> Option<Target> {
        let ethernet = ethernet::check(frame.start(), frame.len()).ok()?;
        let routed = policy::route(self.segment, self.sender, &ethernet, self.now).ok()?;
        let Routed { vlan, route: Route::To(member) } = routed else { return None };
        let receiver = &self.segment.members[member as usize];
        // A tag is not among the macs: the next frame may have another.
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
        self.last = Some((macs, decided));
        self.flow_cache.insert(self.port(), macs, decided);
        Some(target)
    }
}
