//! The reading end of a capture's socket.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use taut_api::fabric::capture::{HEADER, MAX_SNAPLEN, Message};
use tokio::io::ReadBuf;
use tokio::net::UnixDatagram;

/// Reads the messages of the fabric one by one.
#[derive(Debug)]
pub(super) struct Reader {
    socket: Arc<UnixDatagram>,
    /// The packet that was read last.
    packet: Box<[u8]>,
}

impl Reader {
    /// Creates the reader of a socket.
    pub(super) fn new(socket: Arc<UnixDatagram>) -> Self {
        Self { socket, packet: vec![0; HEADER + MAX_SNAPLEN as usize].into_boxed_slice() }
    }

    /// Reads the next message; `None` if the fabric has closed its end.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Message<'_>>>> {
        let mut packet = ReadBuf::new(&mut self.packet);
        ready!(self.socket.poll_recv(cx, &mut packet))?;
        let len = packet.filled().len();
        if len == 0 {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Message::parse(&self.packet[..len]).map(Some).map_err(io::Error::other))
    }
}
