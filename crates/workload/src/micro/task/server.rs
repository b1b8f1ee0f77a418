//! A TCP server.

use std::net::Ipv4Addr;
use std::time::Instant;

use smoltcp::iface::SocketHandle;

use super::connection::Conversation;
use super::{Next, Task, buffer_size};
use crate::agent::protocol::Serve;
use crate::micro::nic::Nic;

/// Sockets that wait for a connection, per vNIC: as many can come at the same moment.
const BACKLOG: usize = 8;

/// A server for all vNICs, or for the one that has a certain address.
pub(in crate::micro) struct ServerTask {
    port: u16,
    address: Option<Ipv4Addr>,
    buffer: usize,
    /// vNIC and socket.
    waiting: Vec<(usize, SocketHandle)>,
    connections: Vec<(usize, SocketHandle, Conversation)>,
}

impl ServerTask {
    /// A server on `port`, which is not 0.
    pub(in crate::micro) fn new(wanted: &Serve, port: u16) -> Self {
        let buffer = buffer_size(wanted.socket_size);
        Self { port, address: wanted.address, buffer, waiting: vec![], connections: vec![] }
    }

    /// Sockets that a connection has found become conversations; others take their place.
    fn accept(&mut self, nics: &mut [Nic]) {
        let connections = &mut self.connections;
        self.waiting.retain(|&(index, handle)| {
            let listening = nics[index].tcp(handle).is_listening();
            if !listening {
                connections.push((index, handle, Conversation::new()));
            }
            listening
        });
        for (index, nic) in nics.iter_mut().enumerate() {
            let own = nic.ip().map(|ip| ip.addr);
            if self.address.is_some() && self.address != own {
                continue;
            }
            let waiting = self.waiting.iter().filter(|(of, _)| *of == index).count();
            for _ in waiting..BACKLOG {
                self.waiting.extend(nic.listen_tcp(self.port, self.buffer).map(|handle| (index, handle)));
            }
        }
    }
}

impl Task for ServerTask {
    fn poll(&mut self, nics: &mut [Nic], _: Instant) -> Next {
        self.accept(nics);
        let mut next = Next::Idle;
        self.connections.retain_mut(|(index, handle, conversation)| {
            let nic = &mut nics[*index];
            let socket = nic.tcp(*handle);
            if !socket.is_open() {
                nic.abort(*handle);
                return false;
            }
            if !socket.may_send() && !socket.may_recv() {
                // Still shaking hands.
                return true;
            }
            match conversation.poll(socket) {
                Next::Done => {
                    nic.close(*handle);
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

    fn stop(&mut self, nics: &mut [Nic]) {
        let connections = self.connections.drain(..).map(|(index, handle, _)| (index, handle));
        for (index, handle) in self.waiting.drain(..).chain(connections) {
            nics[index].abort(handle);
        }
    }
}
