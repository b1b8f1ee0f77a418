//! How many connections a guest may have, and how long a request may stay unanswered.

use std::time::Duration;

use taut_api::fabric::config::SocketConfig;

/// Packets that a guest may have waiting in its ring. More are not taken from it.
pub(crate) const MAX_WAITING_PACKETS: usize = 256;
/// Resets for packets of no connection that may wait for a guest. With that many the fabric takes
/// nothing more from it.
pub(crate) const MAX_REPLIES: usize = 256;
/// An unanswered request is reset after this time. Guests give up after two seconds.
pub(crate) const HALF_OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that a guest has, against its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Connections with an end at the guest.
    pub(crate) connections: u32,
    /// Those of them that count to the guest's limit ([`Connection::owner`]).
    ///
    /// [`Connection::owner`]: super::Connection::owner
    pub(crate) own: u32,
    /// Connections that the guest requested and nobody has accepted.
    pub(crate) half_open: u32,
}

impl Usage {
    /// Tells whether the guest may have one more connection that counts to its limit.
    pub(crate) fn may_own(self, limits: &SocketConfig) -> bool {
        self.own < limits.connections
    }

    /// Tells whether the guest may have one more unanswered request.
    pub(crate) fn may_request(self, limits: &SocketConfig) -> bool {
        self.half_open < limits.half_open
    }
}
