//! Connections of a microguest's programs: one interface for TCP and vsock.

use smoltcp::socket::tcp;

use crate::vsock;

/// Payload of which nobody cares what it is.
pub(crate) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A connection to use: the same for both families.
pub(crate) enum Socket<'a> {
    Tcp(&'a mut tcp::Socket<'static>),
    Vsock(vsock::Socket<'a>),
}

impl Socket<'_> {
    /// Is it being established, does it stand, or is there something left to read?
    pub(crate) fn is_open(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_open(),
            Self::Vsock(socket) => socket.is_open(),
        }
    }

    /// Will the peer take bytes, now or later?
    pub(crate) fn may_send(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.may_send(),
            Self::Vsock(socket) => socket.may_send(),
        }
    }

    /// Is there something to read, or may it come?
    pub(crate) fn may_receive(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.may_recv(),
            Self::Vsock(socket) => socket.may_receive(),
        }
    }

    /// Would it take bytes now?
    pub(crate) fn can_send(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.can_send(),
            Self::Vsock(socket) => socket.can_send(),
        }
    }

    /// Sends bytes; returns how many it took.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Tcp(socket) => socket.send_slice(bytes).unwrap_or(0),
            Self::Vsock(socket) => socket.send(bytes),
        }
    }

    /// Sends up to `len` bytes of which nobody cares what they are; returns how many it took.
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

    /// From now on its program only counts what arrives.
    pub(crate) fn only_counts(&mut self) {
        match self {
            Self::Tcp(_) => {}
            Self::Vsock(socket) => socket.only_counts(),
        }
    }

    /// Takes bytes that have arrived; returns how many.
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

    /// Shows `look` up to `len` bytes that have arrived, in order, and takes them; returns how many.
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

    /// Has the peer confirmed all that was sent, as far as that matters for [`Self::end`]?
    ///
    /// This TCP takes an end at its word even where it has cut the bytes before it to its window, and bytes are then lost
    /// without an error: the end travels alone.
    pub(crate) fn may_end(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.send_queue() == 0,
            Self::Vsock(_) => true,
        }
    }

    /// Nothing is sent any more.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Tcp(socket) => socket.close(),
            Self::Vsock(socket) => socket.end(),
        }
    }
}
