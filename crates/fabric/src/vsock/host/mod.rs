//! The host's end of connections: Unix sockets.
//!
//! * [`listeners`]: the sockets at which clients on the host connect to guests.
//! * [`clients`]: a client sends `CONNECT <port>\n` ([`connect_line`]). The fabric answers
//!   `OK <port>\n` once the guest has accepted.
//! * [`questions`]: `tautd` connects to the program that a guest requests, and is asked to.
//! * [`streams`]: the sockets of connections, and the bytes through them.

mod clients;
mod connect_line;
mod listeners;
mod questions;
mod streams;

#[cfg(test)]
pub(crate) use self::clients::CLIENT_TIMEOUT;
pub(crate) use self::clients::{Clients, ConnectRequest};
pub(crate) use self::listeners::Listeners;
pub(crate) use self::questions::Questions;
pub(crate) use self::streams::{Broken, HOST_BUFFER, HostRead, HostStream, MAX_MOVED, Streams};
use super::proto::{ConnId, GuestIdx};

/// All sockets of the host.
#[derive(Debug, Default)]
pub(crate) struct HostSockets {
    pub(crate) listeners: Listeners,
    pub(crate) clients: Clients,
    pub(crate) questions: Questions,
    pub(crate) streams: Streams,
    /// Buffer for bytes on their way between a socket, a ring and packets, used within one turn.
    pub(crate) buffer: Vec<u8>,
}

impl HostSockets {
    /// Closes the socket of a connection that is forgotten.
    pub(crate) fn close(&mut self, id: ConnId) {
        if let Some(question) = self.streams.remove(id) {
            self.questions.give_up(question);
        }
    }

    /// Closes the sockets of a removed guest at which no connection is yet.
    pub(crate) fn forget(&mut self, guest: GuestIdx) {
        self.listeners.close(guest);
        self.clients.forget(guest);
        self.questions.forget(guest);
    }
}
