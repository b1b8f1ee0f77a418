//! The echo service (RFC 862): each connection returns what it receives. It shows that bytes reach
//! the guest without a program of one's own at either end.

use std::ops::Range;

use super::Next;
use super::server::Talk;
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
    owed: Range<usize>,
}

impl Default for Echo {
    fn default() -> Self {
        Self { bytes: vec![0; BUFFER].into_boxed_slice(), owed: 0..0 }
    }
}

impl Talk for Echo {
    fn poll(&mut self, socket: &mut Socket<'_>) -> Next {
        let mut next = Next::Idle;
        loop {
            if self.owed.is_empty() {
                self.owed = 0..socket.receive(&mut self.bytes);
            }
            if self.owed.is_empty() {
                break;
            }
            let sent = socket.send(&self.bytes[self.owed.clone()]);
            self.owed.start += sent;
            if sent == 0 {
                break;
            }
            next = Next::Again;
        }
        let is_owing = !self.owed.is_empty() && socket.may_send();
        if socket.may_receive() || is_owing { next } else { Next::Done }
    }
}
