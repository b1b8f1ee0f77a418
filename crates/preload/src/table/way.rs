//! The part of an entry that tells how the bytes of a connection move.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::Table;
use super::slot::{INHERITED, STREAM};

/// How the bytes of a connection move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By packets. Nothing else was tried.
    Packets,
    /// Undecided until the first bytes.
    Open,
    /// A thread asks for a channel.
    Asking,
    /// By packets from now on.
    Refused,
    /// By the channel with this index.
    Channel(u32),
}

/// Number of the first channel as a word.
const FIRST: u32 = 4;

impl Way {
    const fn word(self) -> u32 {
        match self {
            Self::Packets => 0,
            Self::Open => 1,
            Self::Asking => 2,
            Self::Refused => 3,
            Self::Channel(index) => FIRST + index,
        }
    }

    const fn of(word: u32) -> Self {
        match word {
            0 => Self::Packets,
            1 => Self::Open,
            2 => Self::Asking,
            3 => Self::Refused,
            more => Self::Channel(more - FIRST),
        }
    }
}

impl Table {
    /// How the bytes of a descriptor move. Costs one load.
    pub(crate) fn way(&self, fd: RawFd) -> Way {
        self.slot(fd).map_or(Way::Packets, |slot| Way::of(slot.way.load(Acquire)))
    }

    /// Sets how the bytes of a connection move.
    pub(crate) fn set_way(&self, fd: RawFd, way: Way) {
        if let Some(slot) = self.slot(fd) {
            slot.way.store(way.word(), Release);
        }
    }

    /// Changes how the bytes of a connection move. Of several threads one succeeds.
    pub(crate) fn change_way(&self, fd: RawFd, from: Way, to: Way) -> bool {
        let change = |way: &std::sync::atomic::AtomicU32| {
            way.compare_exchange(from.word(), to.word(), AcqRel, Acquire).is_ok()
        };
        self.slot(fd).is_some_and(|slot| change(&slot.way))
    }

    /// The hidden number of the control connection of a queue pair.
    pub(crate) fn control(&self, fd: RawFd) -> Option<RawFd> {
        self.slot(fd)
            .map(|slot| slot.control.load(Acquire))
            .filter(|number| *number > 0)
            .map(|number| number - 1)
    }

    /// Sets the number of the control connection.
    pub(crate) fn set_control(&self, fd: RawFd, control: Option<RawFd>) {
        if let Some(slot) = self.slot(fd) {
            slot.control.store(control.map_or(0, |control| control + 1), Release);
        }
    }

    /// Takes the number of the control connection. Of several threads one gets it.
    pub(crate) fn take_control(&self, fd: RawFd) -> Option<RawFd> {
        self.slot(fd)
            .map(|slot| slot.control.swap(0, AcqRel))
            .filter(|number| *number > 0)
            .map(|number| number - 1)
    }

    /// Marks a connection that this process has from its parent and has not used yet (`true`), or
    /// takes the mark away once the process has used it (`false`).
    pub(crate) fn set_inherited(&self, fd: RawFd, inherited: bool) {
        let Some(slot) = self.slot(fd) else { return };
        if inherited {
            slot.marks.fetch_or(INHERITED, Relaxed);
        } else {
            slot.marks.fetch_and(!INHERITED, Relaxed);
        }
    }

    /// Tells whether this process has a connection from its parent, and has not used it yet.
    #[inline]
    pub(crate) fn is_inherited(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.is_marked(INHERITED))
    }

    /// Tells whether a stream of the C library writes to a number.
    pub(crate) fn has_stream(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.is_marked(STREAM))
    }
}
