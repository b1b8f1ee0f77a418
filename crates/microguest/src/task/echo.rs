//! The echo service (RFC 862): each connection returns what it receives. It shows that bytes reach
//! the guest without a program of one's own at either end.

use std::ops::Range;

use super::Next;
use super::server::Served;
use crate::machine::Socket;

/// Port of the service, as for TCP.
pub(crate) const PORT: u16 = 7;
/// Bytes of a connection's receive buffer, and of those that wait to be returned.
pub(crate) const BUFFER: usize = 16 << 10;

/// A connection to the service.
#[derive(Debug)]
pub(crate) struct Echo {
    bytes: Box<[u8]>,
    /// Received and not yet returned.
    pending: Range<usize>,
}

impl Default for Echo {
    fn default() -> Self {
        Self { bytes: vec![0; BUFFER].into_boxed_slice(), pending: 0..0 }
    }
}

impl Served for Echo {
    const MAX_CONNECTIONS: usize = 64;

    fn poll(&mut self, socket: &mut Socket<'_>) -> Next {
        let mut next = Next::Idle;
        loop {
            if self.pending.is_empty() {
                self.pending = 0..socket.receive(&mut self.bytes);
            }
            if self.pending.is_empty() {
                break;
            }
            let sent = socket.send(&self.bytes[self.pending.clone()]);
            self.pending.start += sent;
            if sent == 0 {
                break;
            }
            next = Next::Again;
        }
        let is_pending = !self.pending.is_empty() && socket.may_send();
        if socket.may_receive() || is_pending { next } else { Next::Done }
    }
}
