//! The MAC address at which a port receives.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::net::ethernet::MacKey;

/// The address at which a port receives, where it may differ from the configured one.
#[derive(Debug, Default)]
pub struct Address(AtomicU64);

impl Address {
    /// Back to the configured one.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// Is it this one?
    #[inline]
    pub fn is(&self, mac: MacKey, configured: MacKey) -> bool {
        match self.0.load(Relaxed) {
            0 => mac == configured,
            own => mac.0 == own,
        }
    }

    /// Makes it another one; returns what it was.
    #[inline]
    pub fn replace(&self, mac: MacKey, configured: MacKey) -> MacKey {
        let wanted = if mac == configured { 0 } else { mac.0 };
        // Nearly always the same: nothing is written then.
        let before = if self.0.load(Relaxed) == wanted { wanted } else { self.0.swap(wanted, Relaxed) };
        if before == 0 { configured } else { MacKey(before) }
    }
}
