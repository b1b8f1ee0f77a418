//! Indices of segments and of their members.

/// Index of a segment in [`Switch::segments`](super::Switch::segments).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentIdx(pub u32);

impl SegmentIdx {
    /// Position in the array of segments.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a port in [`Segment::members`](super::segment::Segment::members).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberIdx(pub u32);

impl MemberIdx {
    /// An index that no member has.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// Position in the array of members.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
