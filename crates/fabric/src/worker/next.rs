//! What a source needs after a burst.

use std::time::Instant;

/// What a source needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Another burst: there may be more frames.
    More,
    /// Nothing: the source is empty.
    Nothing,
    /// Room for its first frame, which waits until this time at the latest.
    Wait(Instant),
    /// Another burst at this time: its first frame must not go earlier.
    At(Instant),
    /// Another look at this time: the source is empty, and its guest need not kick.
    Later(Instant),
    /// Nothing: no end is attached.
    Absent,
}
