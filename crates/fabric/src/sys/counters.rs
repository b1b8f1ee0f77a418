//! The counters file: one writer per word, plain stores, no lock. Its layout is [`taut_api::fabric::counters`].
//!
//! A port's words are written under the lock of the queue that they belong to, so adding is a load and a store. Where
//! several queues share a word, adding is atomic.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use taut_api::fabric::counters::{PORT_WORDS, PortWord, WorkerWord, port_base, worker_base};
use taut_api::fabric::{DropReason, PortId};
use taut_virtq::PositionLog;
use taut_virtq::counters::SharedWords;

/// The block of one port.
#[derive(Debug, Clone)]
pub struct PortBlock {
    words: Arc<SharedWords>,
    base: usize,
    /// Several queues of a direction write here, each under a lock of its own.
    shared: bool,
}

impl PortBlock {
    /// The block of this port.
    pub fn new(words: &Arc<SharedWords>, port: PortId) -> Self {
        Self { words: Arc::clone(words), base: port_base(port), shared: false }
    }

    /// The same block for a port with this many pairs of queues.
    #[must_use]
    pub fn for_pairs(self, pairs: usize) -> Self {
        Self { shared: pairs > 1, ..self }
    }

    /// Adds to a word of one direction, under the lock of a queue of that direction.
    #[inline]
    pub fn add(&self, word: PortWord, count: u64) {
        if self.shared {
            self.add_shared(word, count);
        } else {
            add(&self.words, self.base + word as usize, count);
        }
    }

    /// Adds to a word that others may add to at the same time.
    pub fn add_shared(&self, word: PortWord, count: u64) {
        self.words.words()[self.base + word as usize].fetch_add(count, Relaxed);
    }

    /// Where a packed ring's position is written down.
    pub fn position_log(&self, queue: usize) -> Option<PositionLog> {
        let room = PORT_WORDS - PortWord::RingPosition as usize;
        let word = self.base + PortWord::RingPosition as usize + queue;
        if queue < room { PositionLog::new(&self.words, word) } else { None }
    }

    /// Replaces a word.
    pub fn set(&self, word: PortWord, value: u64) {
        self.words.words()[self.base + word as usize].store(value, Relaxed);
    }

    /// Counts a frame of this port's that was dropped.
    pub fn drop_from(&self, reason: DropReason) {
        let at = self.base + PortWord::TxDrops as usize + reason as usize;
        self.words.words()[at].fetch_add(1, Relaxed);
    }

    /// Counts a frame for this port that was dropped.
    pub fn drop_at(&self, reason: DropReason) {
        let at = self.base + PortWord::RxDrops as usize + reason as usize;
        self.words.words()[at].fetch_add(1, Relaxed);
    }
}

/// The block of one worker.
#[derive(Debug)]
pub struct WorkerBlock {
    words: Arc<SharedWords>,
    base: usize,
}

impl WorkerBlock {
    /// The block of this worker.
    pub fn new(words: &Arc<SharedWords>, worker: usize) -> Self {
        Self { words: Arc::clone(words), base: worker_base(worker) }
    }

    /// Adds to a word.
    pub fn add(&self, word: WorkerWord, count: u64) {
        add(&self.words, self.base + word as usize, count);
    }
}

/// Adds to a word that has no other writer now.
#[inline]
fn add(words: &SharedWords, at: usize, count: u64) {
    let word = &words.words()[at];
    word.store(word.load(Relaxed).wrapping_add(count), Relaxed);
}
