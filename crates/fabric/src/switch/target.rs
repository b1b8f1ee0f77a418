//! The receive queue that a frame goes to.

/// A receive queue of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Index of the port in [`Segment::members`](super::Segment::members).
    pub member: u32,
    /// Index of the queue pair; [`SPREAD`] while the frame's flow has yet to choose one.
    pub pair: u32,
}

/// The receiver runs several pairs, and each frame's flow decides between them.
pub const SPREAD: u32 = u32::MAX;
