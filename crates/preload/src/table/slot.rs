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
/// Mark of a connection that no other process has.
pub(super) const PRIVATE: u32 = 4;
/// Mark of a connection with `TCP_CORK`.
pub(super) const CORKED: u32 = 8;
/// Mark of a number to which a stream of the C library writes.
pub(super) const STREAM: u32 = 16;
/// Mark of a connection whose peer has answered since the last write.
pub(super) const ANSWERED: u32 = 32;
/// Mark of an epoll instance that is watched itself.
pub(super) const NESTED: u32 = 64;
/// Mark of a connection that this process has from its parent, and has not used yet.
pub(super) const INHERITED: u32 = 128;

/// Flag of a connection with `TCP_NODELAY`, in the last of its words.
pub(super) const NO_DELAY: u64 = 1;
/// Flag of a connection whose next connect asks for the result of the first one.
pub(super) const UNASKED: u64 = 2;
/// Flag of a connection whose words have the local IP address. Set after these words.
pub(super) const LOCAL: u64 = 4;
/// Flag of a connection whose local address a thread has begun to set. Only one thread does.
pub(super) const LOCAL_BEGUN: u64 = 8;

/// An entry.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) kind: AtomicU32,
    /// [`DUPLICATED`], [`INSTANCE`] and the marks of connections.
    pub(super) marks: AtomicU32,
    /// The cookie and, of a connection, all the rest.
    pub(super) words: [AtomicU64; 8],
    /// [`super::State`] of a listener, otherwise 0.
    pub(super) state: AtomicU64,
    pub(super) port: AtomicU32,
    pub(super) backlog: AtomicI32,
    pub(super) retry: AtomicU64,
    /// Of a listener, whose turn it is to be accepted first; of an epoll instance, whose turn it is
    /// to be reported first.
    pub(super) turn: AtomicU32,
    /// Number of threads that wait for this descriptor. Of an epoll instance with queue pairs they
    /// are counted always, of others only while writes are gathered.
    pub(super) waiting: AtomicU32,
    /// Number of the instance plus one; 0 for none; negative for more than one.
    pub(super) epoll: AtomicI32,
    pub(super) events: AtomicU32,
    pub(super) data: AtomicU64,
    /// What is known about the queue pair of a connection, see [`super::Way`].
    pub(super) way: AtomicU32,
    /// Number of the control connection of a queue pair plus one; 0 for none.
    pub(super) control: AtomicI32,
    /// Flags of an epoll watch on a connection with a queue pair, see [`super::Edge`].
    pub(super) edge: AtomicU32,
    /// Position of the ring at the last event of that watch.
    pub(super) head: AtomicU32,
    /// Number by which all duplicates of this file are known, plus one; 0 for the entry's own
    /// number. See [`super::Table::root`].
    pub(super) root: AtomicI32,
    /// Calls that have not asked the kernel about it since the last one that has.
    pub(super) skipped: AtomicU32,
    /// Tick of the clock at that last one.
    pub(super) tick: AtomicU32,
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
        waiting: AtomicU32::new(0),
        epoll: AtomicI32::new(0),
        events: AtomicU32::new(0),
        data: AtomicU64::new(0),
        way: AtomicU32::new(0),
        control: AtomicI32::new(0),
        edge: AtomicU32::new(0),
        head: AtomicU32::new(0),
        root: AtomicI32::new(0),
        skipped: AtomicU32::new(0),
        tick: AtomicU32::new(0),
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

    /// The flags of a connection: [`NO_DELAY`] and those behind it.
    pub(super) fn flags(&self) -> &AtomicU64 {
        let [.., flags] = &self.words;
        flags
    }

    pub(super) fn cookie(&self) -> u64 {
        let [cookie, ..] = &self.words;
        cookie.load(Ordering::Relaxed)
    }

    pub(super) fn is_marked(&self, mark: u32) -> bool {
        self.marks.load(Ordering::Relaxed) & mark != 0
    }
}
