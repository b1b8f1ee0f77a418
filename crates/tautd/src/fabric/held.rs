//! Duplicates of all descriptors that ports work on, for the next fabric.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::message::Attachment;
use taut_api::fabric::{FabricConfig, PortId, SessionRecord, ToFabric};

use super::owner;

/// A message that gives a port something, with its descriptors.
pub(super) type Attach = (PortId, ToFabric, Vec<Arc<OwnedFd>>);

/// Descriptors for the next fabric, by port.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<PortId, Port>);

/// Descriptors of a port. A listening port may also have a session.
#[derive(Debug, Default)]
struct Port {
    device: Option<(Attachment, Arc<OwnedFd>)>,
    session: Option<(SessionRecord, Vec<Arc<OwnedFd>>)>,
    /// Sockets through which programs on the host connect to VMCI devices. They are independent of
    /// the devices' front ends.
    host: Option<Arc<OwnedFd>>,
}

impl Port {
    fn serves(&self) -> bool {
        self.device.is_some() || self.session.is_some()
    }
}

impl Held {
    /// Keeps a device or listening socket. A plain connection is not kept: its negotiated state
    /// comes as a session, and a connection without a session is opened anew.
    pub(super) fn keep(&mut self, port: PortId, via: &Attachment, fd: Arc<OwnedFd>) {
        let device = match via {
            Attachment::Tap { .. } | Attachment::Listening => Some((via.clone(), fd)),
            Attachment::Connected | Attachment::Session(_) => None,
        };
        let port = self.0.entry(port).or_default();
        port.device = device;
        port.session = None;
    }

    /// Keeps a device or listening socket that the fabric has, unless this daemon keeps one
    /// already: that is the one that the port was given last.
    pub(super) fn keep_found(&mut self, port: PortId, via: &Attachment, fd: Arc<OwnedFd>) {
        let port = self.0.entry(port).or_default();
        port.device.get_or_insert_with(|| (via.clone(), fd));
    }

    /// Keeps the socket through which programs on the host reach a VMCI device.
    pub(super) fn keep_host_socket(&mut self, port: PortId, listener: Arc<OwnedFd>) {
        self.0.entry(port).or_default().host = Some(listener);
    }

    /// Keeps the newest state of a session.
    pub(super) fn keep_session(&mut self, record: SessionRecord, fds: Vec<OwnedFd>) {
        let fds = fds.into_iter().map(Arc::new).collect();
        let port = self.0.entry(record.port).or_default();
        port.session = Some((record, fds));
    }

    /// Closes the duplicates of a session that ended.
    pub(super) fn end_session(&mut self, port: PortId) {
        if let Some(port) = self.0.get_mut(&port) {
            port.session = None;
        }
    }

    /// Closes the descriptors of a port without a working device.
    pub(super) fn release(&mut self, port: PortId) {
        if let Some(port) = self.0.get_mut(&port) {
            port.device = None;
            port.session = None;
        }
    }

    /// Closes the descriptors of ports that are no longer wanted.
    pub(super) fn keep_only(&mut self, config: &FabricConfig) {
        self.0.retain(|port, _| owner(config, *port).is_some());
    }

    /// Returns whether the port has a session.
    pub(super) fn has_session(&self, port: PortId) -> bool {
        self.0.get(&port).is_some_and(|port| port.session.is_some())
    }

    /// Returns the messages that give a new fabric the host sockets of VMCI devices. They have no
    /// answer.
    pub(super) fn host_sockets(&self) -> Vec<Attach> {
        let sockets = self.0.iter().filter_map(|(&port, held)| Some((port, held.host.clone()?)));
        sockets.map(|(port, listener)| (port, ToFabric::HostListener { port }, vec![listener])).collect()
    }

    /// Returns the messages that give a new fabric everything.
    pub(super) fn messages(&self) -> Vec<Attach> {
        self.0.keys().flat_map(|&port| self.messages_of(port)).collect()
    }

    /// Returns the messages that give a new fabric the descriptors of one port. A listening socket
    /// precedes the session that was begun on it.
    pub(super) fn messages_of(&self, port: PortId) -> Vec<Attach> {
        let mut messages = Vec::new();
        if let Some(held) = self.0.get(&port) {
            if let Some((via, fd)) = &held.device {
                messages.push((port, ToFabric::Attach { port, via: via.clone() }, vec![fd.clone()]));
            }
            if let Some((record, fds)) = &held.session {
                let via = Attachment::Session(record.clone());
                messages.push((port, ToFabric::Attach { port, via }, fds.clone()));
            }
        }
        messages
    }

    /// Iterates over the ports that have descriptors.
    pub(super) fn ports(&self) -> Vec<PortId> {
        self.0.iter().filter(|(_, port)| port.serves()).map(|(&id, _)| id).collect()
    }
}
