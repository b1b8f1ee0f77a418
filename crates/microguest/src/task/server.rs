//! The server for request/response and streams.

use std::time::Instant;

use super::connection::Conversation;
use super::{Next, Task};
use crate::machine::{Connection, Listener, Machine};

/// A server with its connections.
pub(crate) struct ServerTask {
    listener: Listener,
    connections: Vec<(Connection, Conversation)>,
}

impl ServerTask {
    /// Creates a server for connections to `listener`.
    pub(crate) fn new(listener: Listener) -> Self {
        Self { listener, connections: vec![] }
    }
}

impl Task for ServerTask {
    fn poll(&mut self, machine: &mut Machine, _: Instant) -> Next {
        while let Some(connection) = machine.accept(&mut self.listener) {
            self.connections.push((connection, Conversation::new()));
        }
        let mut next = Next::Idle;
        self.connections.retain_mut(|(connection, conversation)| {
            let mut socket = machine.socket(*connection);
            if !socket.is_open() {
                machine.abort(*connection);
                return false;
            }
            if !socket.may_send() && !socket.may_receive() {
                // The connection is still being established.
                return true;
            }
            match conversation.poll(&mut socket) {
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
