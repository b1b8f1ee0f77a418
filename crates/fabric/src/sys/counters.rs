//! The counters file, which `tautd` reads. [`taut_api::fabric::counters`] defines its layout.
//!
//! A port's words are written under the lock of the queue that they belong to, so adding is a plain
//! load and store. Where several queues share a word, adding is atomic.

#[cfg(any(test, feature = "rig"))]
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(any(test, feature = "rig"))]
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
#[cfg(any(test, feature = "rig"))]
use taut_api::fabric::counters::FILE_SIZE;
use taut_api::fabric::counters::{PORT_WORDS, PortWord, WorkerWord, port_base, worker_base};
use taut_api::fabric::{DropReason, PortId};
use taut_virtq::PositionLog;
use taut_virtq::counters::SharedWords;

/// Returns the words of an empty counters file.
#[cfg(any(test, feature = "rig"))]
pub fn empty_words() -> Arc<SharedWords> {
    let file = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, FILE_SIZE).unwrap();
    Arc::new(SharedWords::map(file.as_fd(), FILE_SIZE as usize / 8).unwrap())
}

/// The words of one port.
#[derive(Debug, Clone)]
pub struct PortBlock {
    words: Arc<SharedWords>,
    base: usize,
    /// Several queues of one direction write here, each under its own lock.
    shared: bool,
}

impl PortBlock {
    /// The words of this port.
    pub fn new(words: &Arc<SharedWords>, port: PortId) -> Self {
        Self { words: Arc::clone(words), base: port_base(port), shared: false }
    }

    /// The same words for a port with this many queue pairs.
    #[must_use]
    pub fn for_pairs(self, pairs: usize) -> Self {
        Self { shared: pairs > 1, ..self }
    }

    /// Adds to a word of one direction. The caller holds the lock of a queue of that direction.
    #[inline]
    pub fn add(&self, word: PortWord, count: u64) {
        if self.shared {
            self.add_shared(word, count);
        } else {
            add(&self.words, self.base + word as usize, count);
        }
    }

    /// Adds to a word to which other threads may add at the same time.
    pub fn add_shared(&self, word: PortWord, count: u64) {
        self.words.words()[self.base + word as usize].fetch_add(count, Relaxed);
    }

    /// The word in which a packed ring records its position; `None` if there is no room for it.
    pub fn position_log(&self, queue: usize) -> Option<PositionLog> {
        let room = PORT_WORDS - PortWord::RingPosition as usize;
        let word = self.base + PortWord::RingPosition as usize + queue;
        if queue < room { PositionLog::new(&self.words, word) } else { None }
    }

    /// Returns a word.
    pub fn get(&self, word: PortWord) -> u64 {
        self.words.words()[self.base + word as usize].load(Relaxed)
    }

    /// Sets a word.
    pub fn set(&self, word: PortWord, value: u64) {
        self.words.words()[self.base + word as usize].store(value, Relaxed);
    }

    /// Counts a dropped frame at its sender, this port.
    pub fn drop_from(&self, reason: DropReason) {
        let at = self.base + PortWord::TxDrops as usize + reason as usize;
        self.words.words()[at].fetch_add(1, Relaxed);
    }

    /// Counts a dropped frame at its receiver, this port.
    pub fn drop_at(&self, reason: DropReason) {
        let at = self.base + PortWord::RxDrops as usize + reason as usize;
        self.words.words()[at].fetch_add(1, Relaxed);
    }
}

/// The words of one worker.
#[derive(Debug)]
pub struct WorkerBlock {
    words: Arc<SharedWords>,
    base: usize,
}

impl WorkerBlock {
    /// The words of this worker.
    pub fn new(words: &Arc<SharedWords>, worker: usize) -> Self {
        Self { words: Arc::clone(words), base: worker_base(worker) }
    }

    /// Number of rounds that the worker has made, sleeping ones included.
    pub fn rounds(&self) -> u64 {
        let words = [WorkerWord::Bursts, WorkerWord::EmptyRounds, WorkerWord::Sleeps];
        let values = words.map(|word| self.words.words()[self.base + word as usize].load(Relaxed));
        values.into_iter().fold(0, u64::wrapping_add)
    }

    /// Adds to a word. Only this worker writes it.
    pub fn add(&self, word: WorkerWord, count: u64) {
        add(&self.words, self.base + word as usize, count);
    }
}

/// Adds to a word that no other thread writes at the same time.
#[inline]
fn add(words: &SharedWords, at: usize, count: u64) {
    let word = &words.words()[at];
    word.store(word.load(Relaxed).wrapping_add(count), Relaxed);
}
