//! Typed indices: guests, connections, the two sides of a connection, and its two flows.

use std::ops::{Index, IndexMut};

/// Index of a guest's device. The index of a removed device is used again once no connection names
/// it any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GuestIdx(pub(crate) u32);

/// Number of a connection: its index in the table, and the place of its words in the counters file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnId(pub(crate) u32);

/// Number of a channel in the region of a guest's queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChannelIdx(pub(crate) u32);

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// The side that sent the request.
    Requester = 0,
    /// The side that answers the request.
    Responder = 1,
}

impl Side {
    /// Both sides, in the order in which they are worked on.
    pub(crate) const BOTH: [Self; 2] = [Self::Requester, Self::Responder];

    /// The opposite side.
    #[inline]
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Requester => Self::Responder,
            Self::Responder => Self::Requester,
        }
    }
}

/// The flow of bytes from one side of a connection to the other: the unit that takes turns at a
/// receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowId {
    pub(crate) connection: ConnId,
    /// The side that sends.
    pub(crate) from: Side,
}

/// A value for each side of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BySide<T>(pub(crate) [T; 2]);

impl<T> BySide<T> {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T> Index<Side> for BySide<T> {
    type Output = T;

    #[inline]
    fn index(&self, side: Side) -> &T {
        &self.0[side as usize]
    }
}

impl<T> IndexMut<Side> for BySide<T> {
    #[inline]
    fn index_mut(&mut self, side: Side) -> &mut T {
        &mut self.0[side as usize]
    }
}

/// A value for each guest, present or not.
#[derive(Debug)]
pub(crate) struct PerGuest<T>(Vec<T>);

impl<T> Default for PerGuest<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> PerGuest<T> {
    /// Adds the value of the next index.
    pub(crate) fn push(&mut self, value: T) {
        self.0.push(value);
    }

    /// The value of a guest, or `None` if no guest ever had this index.
    pub(crate) fn get_mut(&mut self, guest: GuestIdx) -> Option<&mut T> {
        self.0.get_mut(guest.0 as usize)
    }

    /// The index that the next [`Self::push`] adds.
    pub(crate) fn next_index(&self) -> GuestIdx {
        GuestIdx(self.0.len() as u32)
    }

    /// Tells whether an index exists.
    pub(crate) fn contains(&self, guest: GuestIdx) -> bool {
        (guest.0 as usize) < self.0.len()
    }

    /// All indices.
    pub(crate) fn indices(&self) -> impl Iterator<Item = GuestIdx> + use<T> {
        (0..self.0.len() as u32).map(GuestIdx)
    }

    #[cfg(any(test, feature = "rig"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (GuestIdx, &T)> {
        (0..).map(GuestIdx).zip(&self.0)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (GuestIdx, &mut T)> {
        (0..).map(GuestIdx).zip(&mut self.0)
    }
}

impl<T> Index<GuestIdx> for PerGuest<T> {
    type Output = T;

    #[inline]
    fn index(&self, guest: GuestIdx) -> &T {
        &self.0[guest.0 as usize]
    }
}

impl<T> IndexMut<GuestIdx> for PerGuest<T> {
    #[inline]
    fn index_mut(&mut self, guest: GuestIdx) -> &mut T {
        &mut self.0[guest.0 as usize]
    }
}
