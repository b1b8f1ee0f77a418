//! How much of a connection's payload goes one way: what tells streams from requests and answers.

/// Payload that a side has sent since the other side last sent some.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OneWay {
    /// Number of packets.
    pub(crate) packets: u32,
    /// Number of the caller's look at the ring in which bytes were last added.
    look: u32,
    /// Bytes of that look.
    bytes: u32,
}

impl OneWay {
    /// Adds a packet.
    #[inline]
    pub(crate) fn add(&mut self) {
        self.packets = self.packets.saturating_add(1);
    }

    /// Adds bytes to those of a look, and returns their sum.
    #[inline]
    pub(crate) fn add_to_look(&mut self, look: u32, bytes: u32) -> u32 {
        if self.look != look {
            (self.look, self.bytes) = (look, 0);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes
    }
}
