//! A server, whose connections all do the same.

use std::time::Instant;

use super::{Next, Task};
use crate::machine::{Connection, Listener, Machine, Socket};

/// The server's side of one connection.
pub(crate) trait Served: Default + Send {
    /// Most connections at a time; further ones are reset.
    const MAX_CONNECTIONS: usize = usize::MAX;

    /// Continues as far as possible. Returns [`Next::Done`] when the server closes.
    fn poll(&mut self, socket: &mut Socket<'_>) -> Next;
}

/// A server with its connections.
pub(crate) struct ServerTask<T> {
    listener: Listener,
    connections: Vec<(Connection, T)>,
}

impl<T: Served> ServerTask<T> {
    /// Creates a server for connections to `listener`.
    pub(crate) fn new(listener: Listener) -> Self {
        Self { listener, connections: vec![] }
    }
}

impl<T: Served> Task for ServerTask<T> {
    fn poll(&mut self, machine: &mut Machine, _: Instant) -> Next {
        while let Some(connection) = machine.accept(&mut self.listener) {
            if self.connections.len() < T::MAX_CONNECTIONS {
                self.connections.push((connection, T::default()));
            } else {
                machine.abort(connection);
            }
        }
        let mut next = Next::Idle;
        self.connections.retain_mut(|(connection, served)| {
            let mut socket = machine.socket(*connection);
            if !socket.is_open() {
                machine.abort(*connection);
                return false;
            }
            if !socket.may_send() && !socket.may_receive() {
                // The connection is still being established.
                return true;
            }
            match served.poll(&mut socket) {
                Next::Done => {
                    machine.close(*connection);
                    next = Next::Again;
                    return false;
                }
                Next::Again => next = Next::Again,
                Next::Idle | Next::At(_) => {}
            }
            true
        });
        next
    }

    fn stop(&mut self, machine: &mut Machine) {
        machine.ignore(&mut self.listener);
        self.connections.drain(..).for_each(|(connection, _)| machine.abort(connection));
    }
}
