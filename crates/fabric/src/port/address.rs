//! The MAC address at which a port receives.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::net::ethernet::MacKey;

/// The address at which a port receives and from which it sends, where its guest may change it.
///
/// Zero stands for the configured address.
#[derive(Debug, Default)]
pub struct Address(AtomicU64);

impl Address {
    /// Returns to the configured address.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// The address at which the port receives.
    pub fn current(&self, configured: MacKey) -> MacKey {
        match self.0.load(Relaxed) {
            0 => configured,
            own => MacKey(own),
        }
    }

    /// Tells whether the port receives at `mac`.
    #[inline]
    pub fn is(&self, mac: MacKey, configured: MacKey) -> bool {
        match self.0.load(Relaxed) {
            0 => mac == configured,
            own => mac.0 == own,
        }
    }

    /// Changes the address and returns the one before.
    #[inline]
    pub fn replace(&self, mac: MacKey, configured: MacKey) -> MacKey {
        let wanted = if mac == configured { 0 } else { mac.0 };
        // The address hardly ever changes, and nothing is written if it does not.
        let before = if self.0.load(Relaxed) == wanted { wanted } else { self.0.swap(wanted, Relaxed) };
        if before == 0 { configured } else { MacKey(before) }
    }
}
