//! Connections of a microguest's programs: one interface for TCP and vsock.

use smoltcp::socket::tcp;

use crate::vsock;

/// Payload without meaning.
pub(crate) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A connection in use, of either family.
pub(crate) enum Socket<'a> {
    Tcp(&'a mut tcp::Socket<'static>),
    Vsock(vsock::Socket<'a>),
}

impl Socket<'_> {
    /// Returns whether the connection is being established, is established, or has bytes left to
    /// read.
    pub(crate) fn is_open(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_open(),
            Self::Vsock(socket) => socket.is_open(),
        }
    }

    /// Returns whether the peer accepts bytes, now or later.
    pub(crate) fn may_send(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.may_send(),
            Self::Vsock(socket) => socket.may_send(),
        }
    }

    /// Returns whether there is something to read, or may be later.
    pub(crate) fn may_receive(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.may_recv(),
            Self::Vsock(socket) => socket.may_receive(),
        }
    }

    /// Returns whether the connection accepts bytes now.
    pub(crate) fn can_send(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.can_send(),
            Self::Vsock(socket) => socket.can_send(),
        }
    }

    /// Returns whether nothing can be sent before [`super::Machine::news`] changes. TCP has no such
    /// news.
    pub(crate) fn waits_for_credit(&mut self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Vsock(socket) => socket.waits_for_credit(),
        }
    }

    /// Sends bytes. Returns how many were accepted.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Tcp(socket) => socket.send_slice(bytes).unwrap_or(0),
            Self::Vsock(socket) => socket.send(bytes),
        }
    }

    /// Sends up to `len` bytes without meaning. Returns how many were accepted.
    pub(crate) fn send_any(&mut self, len: usize) -> usize {
        match self {
            Self::Tcp(socket) => {
                let mut sent = 0;
                while sent < len {
                    match socket.send_slice(&ZEROS[..ZEROS.len().min(len - sent)]) {
                        Ok(count) if count > 0 => sent += count,
                        _ => break,
                    }
                }
                sent
            }
            Self::Vsock(socket) => socket.send_any(&ZEROS, len),
        }
    }

    /// From now on the program only counts what arrives.
    pub(crate) fn only_counts(&mut self) {
        match self {
            Self::Tcp(_) => {}
            Self::Vsock(socket) => socket.only_counts(),
        }
    }

    /// Reads bytes that have arrived. Returns how many.
    pub(crate) fn receive(&mut self, mut into: &mut [u8]) -> usize {
        match self {
            Self::Tcp(socket) => socket.recv_slice(into).unwrap_or(0),
            Self::Vsock(socket) => socket.receive(into.len(), |piece| {
                let (now, later) = std::mem::take(&mut into).split_at_mut(piece.len());
                now.copy_from_slice(piece);
                into = later;
            }),
        }
    }

    /// Passes up to `len` bytes that have arrived to `look`, in order, and removes them. Returns
    /// how many.
    pub(crate) fn take(&mut self, len: usize, mut look: impl FnMut(&[u8])) -> usize {
        match self {
            Self::Tcp(socket) => socket
                .recv(|bytes| {
                    let taken = bytes.len().min(len);
                    look(&bytes[..taken]);
                    (taken, taken)
                })
                .unwrap_or(0),
            Self::Vsock(socket) => socket.receive(len, look),
        }
    }

    /// Returns whether [`Self::end`] may be called without losing bytes.
    ///
    /// smoltcp sends the FIN even if it has cut the bytes before it to the peer's window, and the
    /// rest is lost without an error. Everything must therefore be acknowledged first.
    pub(crate) fn may_end(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.send_queue() == 0,
            Self::Vsock(_) => true,
        }
    }

    /// Shuts down the sending direction.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Tcp(socket) => socket.close(),
            Self::Vsock(socket) => socket.end(),
        }
    }
}
