//! The part of an entry that an epoll watch on a connection with a queue pair needs, and the set of
//! such connections.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::slot::{INSTANCE, NESTED};
use super::{SLOTS, Table};

/// Flags of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge(u32);

impl Edge {
    /// No flag.
    pub(crate) const NONE: Self = Self(0);
    /// The instance watches the sockets of the queue pair, with data of the library.
    pub(crate) const WATCHED: Self = Self(1);
    /// This process, not one that it was forked from, has added the watch.
    pub(crate) const OWN: Self = Self(2);
    /// No event was reported since the program has set the watch.
    pub(crate) const FRESH: Self = Self(4);
    /// Room is to be reported, since a write has found too little of it.
    pub(crate) const ROOM: Self = Self(8);
    /// The end of the stream was reported.
    pub(crate) const ENDED: Self = Self(16);
    /// The only event that the program has asked for was reported (`EPOLLONESHOT`).
    pub(crate) const SPENT: Self = Self(32);
    /// A thread finds out whether it reports the only event.
    pub(crate) const TAKING: Self = Self(64);

    /// The union of two sets of flags.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Tells whether all of these are set.
    pub(crate) const fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }
}

const WORDS: usize = SLOTS / 64;

/// A set of descriptors.
#[derive(Debug)]
pub(super) struct Numbers {
    words: [AtomicU64; WORDS],
    /// Number of words that were ever used.
    used: AtomicU32,
}

impl Numbers {
    pub(super) const fn none() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS], used: AtomicU32::new(0) }
    }

    fn set(&self, fd: RawFd, on: bool) {
        let Ok(number) = usize::try_from(fd) else { return };
        let Some(word) = self.words.get(number / 64) else { return };
        if on {
            word.fetch_or(1 << (number % 64), AcqRel);
            self.used.fetch_max(number as u32 / 64 + 1, AcqRel);
        } else {
            word.fetch_and(!(1 << (number % 64)), AcqRel);
        }
    }

    fn all(&self) -> impl Iterator<Item = RawFd> {
        let words = self.words.iter().take(self.used.load(Acquire) as usize).enumerate();
        words.flat_map(|(place, word)| {
            let mut bits = word.load(Acquire);
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (bit < 64).then_some((place as u32 * 64 + bit).cast_signed())
            })
        })
    }
}

impl Table {
    /// The flags of a watch.
    pub(crate) fn edge(&self, fd: RawFd) -> Edge {
        Edge(self.slot(fd).map_or(0, |slot| slot.edge.load(Acquire)))
    }

    /// Sets flags, and removes others. Returns the former ones.
    pub(crate) fn change_edge(&self, fd: RawFd, set: Edge, remove: Edge) -> Edge {
        let Some(slot) = self.slot(fd) else { return Edge::NONE };
        let change = |flags: u32| Some(flags & !remove.0 | set.0);
        let (Ok(before) | Err(before)) = slot.edge.fetch_update(AcqRel, Acquire, change);
        if set.has(Edge::WATCHED) {
            self.rings.set(fd, true);
        }
        Edge(before)
    }

    /// Ends a watch on the sockets of a queue pair.
    pub(crate) fn end_edge(&self, fd: RawFd) {
        if let Some(slot) = self.slot(fd)
            && slot.edge.swap(0, AcqRel) != 0
        {
            self.rings.set(fd, false);
        }
    }

    /// Position of the ring at the last event of a watch.
    pub(crate) fn reported(&self, fd: RawFd) -> u32 {
        self.slot(fd).map_or(0, |slot| slot.head.load(Relaxed))
    }

    /// Sets the position. Returns the former one.
    pub(crate) fn swap_reported(&self, fd: RawFd, head: u32) -> u32 {
        self.slot(fd).map_or(head, |slot| slot.head.swap(head, AcqRel))
    }

    /// The connections with queue pairs that an epoll instance watches.
    pub(crate) fn rings_watched(&self, epoll: RawFd) -> impl Iterator<Item = RawFd> {
        let root = self.root(epoll);
        self.rings.all().filter(move |fd| {
            self.slot(*fd).is_some_and(|slot| {
                let number = slot.epoll.load(Relaxed);
                number > 0 && self.root(number - 1) == root && slot.edge.load(Relaxed) & 1 != 0
            })
        })
    }

    /// Tells whether a number is an epoll instance that watches descriptors, and is not known to be
    /// watched itself.
    pub(crate) fn is_first_level(&self, fd: RawFd) -> bool {
        let slot = self.slot(self.root(fd));
        slot.is_some_and(|slot| slot.marks.load(Relaxed) & (INSTANCE | NESTED) == INSTANCE)
    }

    /// Records that an epoll instance is watched itself.
    pub(crate) fn set_nested(&self, fd: RawFd) {
        if let Some(slot) = self.slot(self.root(fd)) {
            slot.marks.fetch_or(NESTED, Relaxed);
        }
    }

    /// Tells whether that is recorded.
    pub(crate) fn is_nested(&self, fd: RawFd) -> bool {
        self.slot(self.root(fd)).is_some_and(|slot| slot.is_marked(NESTED))
    }

    /// The number by which duplicates of a file know each other, among them epoll instances.
    pub(crate) fn root(&self, fd: RawFd) -> RawFd {
        match self.slot(fd).map_or(0, |slot| slot.root.load(Relaxed)) {
            0 => fd,
            number => number - 1,
        }
    }

    /// Has the duplicates of a number know each other without it. Watches of an epoll instance go
    /// on by another number.
    pub(super) fn leave_root(&self, fd: RawFd) {
        let root = self.root(fd);
        if let Some(slot) = self.slot(fd) {
            slot.root.store(0, Relaxed);
        }
        let is_one = |other: &RawFd| *other != fd && self.root(*other) == root;
        let Some(next) = self.numbers().find(is_one) else { return };
        for other in self.numbers() {
            let Some(slot) = self.slot(other) else { continue };
            if root == fd && is_one(&other) {
                slot.root.store(next.saturating_add(1), Relaxed);
            }
            if slot.epoll.load(Relaxed) == fd.saturating_add(1) {
                slot.epoll.store(next.saturating_add(1), Relaxed);
            }
        }
    }

    /// Records that all watches are now those of a parent process, whose threads this one does not
    /// have.
    pub(crate) fn inherit_edges(&self) {
        for fd in self.rings.all() {
            self.change_edge(fd, Edge::NONE, Edge::OWN.and(Edge::TAKING));
        }
    }

    /// Number of threads that wait for an epoll instance.
    pub(crate) fn waiting_for(&self, fd: RawFd) -> u32 {
        self.slot(self.root(fd)).map_or(0, |slot| slot.waiting.load(Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_order() {
        let numbers = Numbers::none();
        assert_eq!(numbers.all().count(), 0);
        for fd in [0, 63, 64, 700, 65_535, -1, 65_536] {
            numbers.set(fd, true);
        }
        assert_eq!(numbers.all().collect::<Vec<_>>(), [0, 63, 64, 700, 65_535]);
        numbers.set(64, false);
        numbers.set(65_535, false);
        assert_eq!(numbers.all().collect::<Vec<_>>(), [0, 63, 700]);
    }

    #[test]
    fn a_child_takes_over_no_thread_of_its_parent() {
        static TABLE: Table = Table::new();
        TABLE.change_edge(5, Edge::WATCHED.and(Edge::OWN).and(Edge::SPENT).and(Edge::TAKING), Edge::NONE);
        TABLE.inherit_edges();
        assert_eq!(TABLE.edge(5), Edge::WATCHED.and(Edge::SPENT));
    }
}
