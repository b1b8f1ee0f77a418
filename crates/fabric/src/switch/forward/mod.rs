//! The path of a frame: from one sender to its receivers, by policy, look-up, delivery and
//! counting.
//!
//! A burst locks one receive queue at a time and keeps it while frames go to the same member.
//! The files in the order in which a frame meets them:
//! - `run`, the fast path: plain frames with one known receiver go in runs, and nearly every frame
//!   is of this kind;
//! - `outward`: frames of a guest that leave by a packet socket go in runs, too;
//! - `single`, the slow path: every other frame goes by itself, to one member or many;
//! - `group`: the receivers of a frame for a group address, and what such frames tell of groups and
//!   of their senders;
//! - `deliver`: the slow path hands one frame to one member;
//! - `finish`: when the burst ends, each queue that received frames is published once, with an
//!   interrupt if one is due.
//!
//! `turn` asks for turns at uplinks with network I/O control, and `wire` counts the frames that
//! come from outside or go there. `watch` has frames captured and copied to mirrors; all frames of
//! such ports take the slow path.
//!
//! `lock_queue` below serves all of them. `lro` answers the questions of large receive offload,
//! which precedes all this.

mod deliver;
mod finish;
mod group;
mod lro;
mod outward;
mod run;
mod single;
mod turn;
mod watch;
mod wire;
mod workspace;

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use taut_api::fabric::{DropReason, PortId};

use super::index::MemberIdx;
use super::segment::Segment;
use super::target::Target;
use crate::net::ethernet::{HEADER, MAX_FRAME, MacPair, TAG};
use crate::net::flow_hash;
use crate::net::queue::PairIdx;
use crate::port::{Frame, RxSlot};
pub use workspace::{FailedQueue, Workspace};

/// A frame that has passed its sender's policy.
#[derive(Debug)]
struct Admitted<'a> {
    frame: Frame<'a>,
    /// Bytes of the packet in the frame, or of the longest segment that it will be cut into,
    /// without the Ethernet header and a tag.
    packet: usize,
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
    /// The frame stays with the sender until its turn at an uplink, which tells the sender's
    /// worker; at the latest, the sender asks again at this time.
    Turn(Instant),
}

/// One sender's burst.
#[derive(Debug)]
pub struct Forwarder<'s> {
    segment: &'s Segment,
    sender: MemberIdx,
    /// Pair of the sender's queue.
    pair: PairIdx,
    now: Instant,
    /// Bytes of the longest frame without a tag and offloads that the sender may send.
    longest: usize,
    work: &'s mut Workspace,
    /// The receive queue that is locked.
    locked: Option<(Target, MutexGuard<'s, RxSlot>)>,
    frames: u64,
    bytes: u64,
    /// Addresses and type of the last frame on the fast path, and its queue.
    last: Option<(MacPair, Target)>,
    /// Number of frames that software offload has made in this burst, and of memberships that were
    /// noted.
    pieces: usize,
    /// Time after which the burst is long; `None` if any time is short enough.
    end: Option<Instant>,
    /// End of all waits in this burst; set only if the sender is an uplink.
    end_of_waits: Option<Instant>,
    /// Reason for which the present frame was dropped at its sender. Has a meaning only if the
    /// sender is watched.
    dropped: Option<DropReason>,
}

/// Number of frames that software offload may make before the burst ends, so that other sources do
/// not wait for a sender of long frames in short segments. A membership counts as one.
const PIECES_PER_BURST: usize = 1024;

impl<'s> Forwarder<'s> {
    /// Begins a burst of a queue of `sender` at `now`.
    #[inline]
    pub fn new(
        segment: &'s Segment,
        sender: MemberIdx,
        pair: PairIdx,
        now: Instant,
        work: &'s mut Workspace,
    ) -> Self {
        let end = work.longest_burst.map(|longest| Instant::now() + longest);
        Self {
            segment,
            sender,
            pair,
            now,
            longest: (HEADER + TAG + segment.member(sender).mtu).min(MAX_FRAME),
            work,
            locked: None,
            frames: 0,
            bytes: 0,
            last: None,
            pieces: 0,
            end,
            end_of_waits: None,
            dropped: None,
        }
    }

    /// Limits the waits of this burst: the sender is an uplink that has this waiting time left.
    pub fn limit_waits(&mut self, left: Duration) {
        self.end_of_waits = Some(self.now + left);
    }

    /// Tells whether the burst has done so much for its sender that others come first now.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.pieces >= PIECES_PER_BURST || self.end.is_some_and(|end| Instant::now() >= end)
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

    /// Locks a receive queue, and unlocks the one that was locked before. The lock is kept until
    /// another queue is wanted or the burst ends.
    #[inline]
    fn lock_queue(&mut self, target: Target) -> &mut RxSlot {
        if !matches!(&self.locked, Some((other, _)) if *other == target) {
            // Unlock first: two queues must never be locked at once.
            self.locked = None;
        }
        let (segment, touched) = (self.segment, &mut self.work.touched);
        let locked = self.locked.get_or_insert_with(|| {
            touched.push(target);
            (target, segment.member(target.member).port.rx(target.pair))
        });
        &mut locked.1
    }
}

#[cfg(test)]
mod outward_tests;
#[cfg(test)]
mod tests;
