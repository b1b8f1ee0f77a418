//! Control packets that a flow owes its receiver.
//!
//! Packets without payload are not queued but remembered. A flow owes its receiver at most one
//! packet of each kind, however often the sender sent it. So no guest can use memory, or keep its
//! ring occupied, by packets without payload.

use taut_virtq::socket_header::{CREDIT_REQUEST, CREDIT_UPDATE, REQUEST, RESPONSE, RST, SHUTDOWN};

/// Control packets that the receiver of a flow is still to be sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PendingControl {
    pub(crate) request: bool,
    pub(crate) response: bool,
    /// The sender's credit has changed.
    pub(crate) credit_update: bool,
    /// The sender asks for the receiver's credit.
    pub(crate) credit_request: bool,
    /// Bits of the shutdown operation. Sent after all payload.
    pub(crate) shutdown: u32,
    /// Sent last.
    pub(crate) reset: bool,
}

impl PendingControl {
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The operation that goes before payload.
    #[inline]
    pub(crate) fn before_payload(self) -> Option<u16> {
        match self {
            pending if pending.request => Some(REQUEST),
            pending if pending.response => Some(RESPONSE),
            _ => None,
        }
    }

    /// The operation about credit. It is needed only while no payload packet can carry the credit.
    #[inline]
    pub(crate) fn about_credit(self) -> Option<u16> {
        match self {
            pending if pending.credit_request => Some(CREDIT_REQUEST),
            pending if pending.credit_update => Some(CREDIT_UPDATE),
            _ => None,
        }
    }

    /// The operation and the header flags to send when no payload is left. Bits of the shutdown
    /// that are `withheld` are not sent yet.
    #[inline]
    pub(crate) fn after_payload(self, withheld: u32) -> Option<(u16, u32)> {
        if let Some(op) = self.about_credit() {
            Some((op, 0))
        } else if self.shutdown & !withheld != 0 {
            Some((SHUTDOWN, self.shutdown & !withheld))
        } else if self.reset {
            Some((RST, 0))
        } else {
            None
        }
    }
}
