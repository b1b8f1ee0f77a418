//! The receive queue that a frame goes to.

use super::index::MemberIdx;
use crate::net::queue::PairIdx;

/// A receive queue of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The receiving port.
    pub member: MemberIdx,
    /// The port's queue pair; [`SPREAD`] while the frame's flow has yet to choose one.
    pub pair: PairIdx,
}

/// Stands for all running pairs of a receiver: each frame's flow chooses one of them.
pub const SPREAD: PairIdx = PairIdx(u32::MAX);
