//! The ports at which the program has waited for connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// A set of VMCI ports. Ports with the same lower 16 bits are one.
#[derive(Debug)]
pub(crate) struct Waited([AtomicU64; 1024]);

impl Waited {
    /// No port.
    pub(super) const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; 1024])
    }

    fn bit(&self, port: u32) -> Option<(&AtomicU64, u64)> {
        Some((self.0.get(usize::from(port as u16) / 64)?, 1 << (port % 64)))
    }

    /// Adds a port.
    pub(crate) fn add(&self, port: u32) {
        if let Some((word, bit)) = self.bit(port) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Tells whether a port is in the set.
    pub(crate) fn has(&self, port: u32) -> bool {
        self.bit(port).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_remembered() {
        let all = Waited::none();
        for port in [0, 63, 64, 6379, 65_535, 70_000] {
            assert!(!all.has(port), "{port}");
            all.add(port);
            assert!(all.has(port) && all.has(port | 1 << 16), "{port}");
        }
        assert!(!all.has(1) && !all.has(6378) && !all.has(6380));
    }
}
