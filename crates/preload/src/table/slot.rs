//! One entry of the table, as atomic words.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

pub(super) const NOTHING: u32 = 0;
pub(super) const CONNECTION: u32 = 1;
pub(super) const LISTENER: u32 = 2;
pub(super) const HIDDEN: u32 = 3;

/// Mark of a number that is or was a duplicate of another one.
pub(super) const DUPLICATED: u32 = 1;
/// Mark of an epoll instance.
pub(super) const INSTANCE: u32 = 2;

/// An entry.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) kind: AtomicU32,
    /// [`DUPLICATED`] and [`INSTANCE`].
    pub(super) marks: AtomicU32,
    /// The cookie and, of a connection, all the rest.
    pub(super) words: [AtomicU64; 8],
    /// [`super::State`] of a listener, otherwise 0.
    pub(super) state: AtomicU64,
    pub(super) port: AtomicU32,
    pub(super) backlog: AtomicI32,
    pub(super) retry: AtomicU64,
    pub(super) turn: AtomicU32,
    /// Number of the instance plus one; 0 for none; negative for more than one.
    pub(super) epoll: AtomicI32,
    pub(super) events: AtomicU32,
    pub(super) data: AtomicU64,
}

impl Slot {
    #[allow(clippy::declare_interior_mutable_const, reason = "copied into each slot of the static")]
    pub(super) const EMPTY: Self = Self {
        kind: AtomicU32::new(NOTHING),
        marks: AtomicU32::new(0),
        words: [const { AtomicU64::new(0) }; 8],
        state: AtomicU64::new(0),
        port: AtomicU32::new(0),
        backlog: AtomicI32::new(0),
        retry: AtomicU64::new(0),
        turn: AtomicU32::new(0),
        epoll: AtomicI32::new(0),
        events: AtomicU32::new(0),
        data: AtomicU64::new(0),
    };

    pub(super) fn words(&self) -> [u64; 8] {
        self.words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, kind: u32, words: [u64; 8], state: u64) {
        for (slot, word) in self.words.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.state.store(state, Ordering::Release);
        self.kind.store(kind, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        // First, so that no thread changes a listener that is gone.
        self.state.store(0, Ordering::Release);
        self.kind.store(NOTHING, Ordering::Release);
    }

    pub(super) fn cookie(&self) -> u64 {
        let [cookie, ..] = &self.words;
        cookie.load(Ordering::Relaxed)
    }

    pub(super) fn is_marked(&self, mark: u32) -> bool {
        self.marks.load(Ordering::Relaxed) & mark != 0
    }
}
