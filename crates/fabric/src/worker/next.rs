//! The need of a source after a burst.

use std::time::Instant;

/// The need of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Another burst: there may be more frames.
    More,
    /// The source is empty and needs nothing.
    Nothing,
    /// Room for its first frame, which waits until this time at the latest.
    Wait(Instant),
    /// Another burst at this time: its first frame must not go earlier.
    At(Instant),
    /// Another look at this time: the source is empty, and its guest need not kick.
    Later(Instant),
    /// No end is attached, so the source needs nothing.
    Absent,
}
