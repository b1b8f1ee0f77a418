//! One source: the bytes that were read go through its rate limit to its log and its clients.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::client::{Input, Outbox};
use crate::log::{BoundedLog, Storage};
use crate::rate::{Limiter, RateLimit};

/// The state of a source, without its descriptors.
#[derive(Debug)]
pub struct Source<S> {
    limiter: Limiter,
    log: BoundedLog<S>,
    /// Output that waits for each client, by its number.
    pub clients: BTreeMap<u64, Outbox>,
    /// Input that waits for the guest.
    pub input: Input,
    /// Output that has passed the rate limit; empty between calls.
    passed: Vec<u8>,
}

impl<S: Storage> Source<S> {
    /// Creates a source without clients.
    pub fn new(log: BoundedLog<S>, rate: RateLimit, now: Instant) -> Self {
        Self {
            limiter: Limiter::new(rate, now),
            log,
            clients: BTreeMap::new(),
            input: Input::default(),
            passed: Vec::new(),
        }
    }

    /// Takes bytes that were read.
    pub fn take(&mut self, bytes: &[u8], now: Instant) {
        self.limiter.pass(bytes, now, &mut self.passed);
        self.hand_out(now);
    }

    /// Does what is due.
    pub fn settle(&mut self, now: Instant) {
        self.limiter.settle(now, &mut self.passed);
        self.hand_out(now);
        self.log.settle(now);
    }

    /// Hands out what is held back, and tries to write what is in memory.
    pub fn finish(&mut self, now: Instant) {
        self.limiter.finish(&mut self.passed);
        self.hand_out(now);
        self.log.finish(now);
    }

    /// Returns the time at which [`Self::settle`] has something to do, or a client is stuck.
    pub fn due(&self) -> Option<Instant> {
        let stuck = self.clients.values().filter_map(Outbox::stuck_at);
        stuck.chain(self.limiter.due()).chain(self.log.due()).min()
    }

    fn hand_out(&mut self, now: Instant) {
        if self.passed.is_empty() {
            return;
        }
        self.log.append(&self.passed, now);
        for outbox in self.clients.values_mut() {
            outbox.push(&self.passed, now);
        }
        self.passed.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn log_and_clients_get_the_same_bytes() {
        let now = Instant::now();
        let file = tempfile::tempfile().unwrap();
        let log = BoundedLog::new(file.try_clone().unwrap(), 1 << 20, now);
        let mut source = Source::new(log, RateLimit { rate: 1000, burst: 8 }, now);
        source.take(b"before ", now);
        source.clients.insert(7, Outbox::new(now));
        source.take(b"abcdefgh", now);
        assert_eq!(source.clients[&7].front(), b"a");
        let due = source.due().unwrap();
        assert!(due > now && due < now + Duration::from_secs(1));
        source.finish(now);
        assert_eq!(source.clients[&7].front(), b"abcdefgh");
        assert_eq!(source.due(), None);
        let mut all = [0; 32];
        let n = Storage::read_at(&file, &mut all, 0).unwrap();
        assert_eq!(&all[..n], b"before abcdefgh");
    }
}
