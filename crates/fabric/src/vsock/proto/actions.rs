//! Results of a step of the protocol: actions for the caller.

use super::ids::Side;

/// At most one entry per side, in the order of insertion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sides([Option<Side>; 2]);

impl Sides {
    /// Appends a side that is not in the list yet.
    #[inline]
    pub(crate) fn add(&mut self, side: Side) {
        match self.0 {
            [None, _] => self.0[0] = Some(side),
            [Some(first), None] if first != side => self.0[1] = Some(side),
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0[0].is_none()
    }
}

impl IntoIterator for Sides {
    type Item = Side;
    type IntoIter = SidesIter;

    #[inline]
    fn into_iter(self) -> SidesIter {
        SidesIter(self.0)
    }
}

/// Iterator over [`Sides`].
#[derive(Debug)]
pub(crate) struct SidesIter([Option<Side>; 2]);

impl Iterator for SidesIter {
    type Item = Side;

    #[inline]
    fn next(&mut self) -> Option<Side> {
        let [first, second] = self.0;
        self.0 = [second, None];
        first
    }
}

/// Actions for the caller after a step of a connection's state machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Actions {
    /// Sides whose flow has something for its receiver, in the order in which to queue the flows.
    pub(crate) ready: Sides,
    /// Side whose new credit the other side is to be told later.
    pub(crate) update_later: Option<Side>,
    /// Actions that few packets need.
    pub(crate) rare: Rare,
}

/// The actions that few packets need: at the beginning and at the end of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rare {
    /// Sides whose waiting packets go back to them, undelivered.
    pub(crate) discard: Sides,
    /// The request has been answered: the connection counts no longer as half-open.
    pub(crate) answered: bool,
    /// Both sides know of the end: the connection is to be forgotten.
    pub(crate) closed: bool,
}

impl Rare {
    /// Tells whether there is anything to do.
    #[inline]
    pub(crate) fn any(self) -> bool {
        self.answered || self.closed || !self.discard.is_empty()
    }
}
