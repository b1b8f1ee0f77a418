//! Memory that a worker's bursts use again and again.

use std::time::Duration;

use super::super::flow_cache::FlowCache;
use super::super::index::MemberIdx;
use super::super::target::Target;
use super::outward::Leaving;
use crate::net::ethernet::MAX_TAGGED;
use crate::net::multicast::Record;
use crate::port::Failure;

/// The memory of one worker's bursts.
#[derive(Debug, Default)]
pub struct Workspace {
    pub(super) scratch: Scratch,
    /// Time after which a burst is long; `None` without a limit. A burst ends with the frame, or
    /// the run, that is under way then. Frames from ring to ring do not end it.
    pub longest_burst: Option<Duration>,
    /// Recent decisions.
    pub flow_cache: FlowCache,
    /// Queues with frames that are not published yet; empty between bursts.
    pub(super) touched: Vec<Target>,
    /// Frames of a run to a packet socket; empty between runs.
    pub(super) leaving: Vec<Leaving>,
    /// Receivers of a frame for a group; empty between frames.
    pub(super) chosen: Vec<MemberIdx>,
    /// Memberships in the last message about them.
    pub(super) records: Vec<Record>,
    /// Queues that failed during the burst; the worker reports them.
    pub failed: Vec<FailedQueue>,
}

/// Buffers for frames that cannot go straight from ring to ring.
#[derive(Debug)]
pub(super) struct Scratch {
    /// A frame copied out of guest memory.
    pub(super) whole: Box<[u8]>,
    /// One piece of it.
    pub(super) piece: Box<[u8]>,
    /// A frame from the fabric's memory with another tag.
    pub(super) edited: Box<[u8]>,
}

impl Default for Scratch {
    fn default() -> Self {
        let space = || vec![0; MAX_TAGGED].into();
        Self { whole: space(), piece: space(), edited: space() }
    }
}

/// A receive queue whose end stopped working during a burst.
#[derive(Debug)]
pub struct FailedQueue {
    /// The queue.
    pub target: Target,
    /// The reason.
    pub failure: Failure,
}
