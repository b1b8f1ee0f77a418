//! The counters of one device in the counters file.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use taut_api::fabric::PortId;
use taut_api::fabric::counters::{SocketWord, port_base};
use taut_virtq::counters::SharedWords;
use taut_virtq::device::socket::InFlight;

/// The words of one device. Their only writer is the holder of the lock of all vsock devices, so
/// adding is a load and a store.
#[derive(Debug, Clone)]
pub(crate) struct DeviceCounters {
    words: Arc<SharedWords>,
    /// Index of the device's first word.
    base: usize,
}

impl DeviceCounters {
    pub(crate) fn new(words: &Arc<SharedWords>, port: PortId) -> Self {
        Self { words: Arc::clone(words), base: port_base(port) }
    }

    /// Adds to a counter.
    #[inline]
    pub(crate) fn add(&self, word: SocketWord, count: u64) {
        let word = &self.words.words()[self.base + word as usize];
        word.store(word.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Adds one to a word that is no counter, or takes one away.
    pub(crate) fn step(&self, word: SocketWord, is_up: bool) {
        self.add(word, if is_up { 1 } else { u64::MAX });
    }

    /// Replaces the value of a word.
    pub(crate) fn set(&self, word: SocketWord, value: u64) {
        self.words.words()[self.base + word as usize].store(value, Relaxed);
    }

    /// The words from this one on.
    pub(crate) fn words_from(&self, word: SocketWord) -> &[AtomicU64] {
        &self.words.words()[self.base + word as usize..]
    }

    /// The record of the packets that were taken from the guest and not given back.
    pub(crate) fn in_flight(&self) -> InFlight {
        InFlight::new(&self.words, self.base + SocketWord::InFlight as usize)
    }
}
