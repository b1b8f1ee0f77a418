//! Duplicates of everything that ports work on, for the next fabric.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::message::Attachment;
use taut_api::fabric::{FabricConfig, PortId, SessionRecord, ToFabric};

use super::owner;

/// The message that gives a port something, and what travels with it.
pub(super) type Attach = (PortId, ToFabric, Vec<Arc<OwnedFd>>);

/// Per port, what the next fabric is given.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<PortId, Port>);

/// A port's descriptors. A port that listens may have a session besides.
#[derive(Debug, Default)]
struct Port {
    device: Option<(Attachment, Arc<OwnedFd>)>,
    session: Option<(SessionRecord, Vec<Arc<OwnedFd>>)>,
    /// Where programs of the host connect to a VMCI device. Nothing that happens to its front end concerns it.
    host: Option<Arc<OwnedFd>>,
}

impl Port {
    fn serves(&self) -> bool {
        self.device.is_some() || self.session.is_some()
    }
}

impl Held {
    /// Keeps a device or listening socket. A plain connection is not kept: what was negotiated on it comes as a session, and
    /// one without a session is made anew.
    pub(super) fn keep(&mut self, port: PortId, via: &Attachment, fd: Arc<OwnedFd>) {
        let device = match via {
            Attachment::Tap { .. } | Attachment::Listening => Some((via.clone(), fd)),
            Attachment::Connected | Attachment::Session(_) => None,
        };
        let port = self.0.entry(port).or_default();
        port.device = device;
        port.session = None;
    }

    /// Keeps the socket by which programs of the host reach a VMCI device.
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

    /// Closes what a port without a working device had.
    pub(super) fn release(&mut self, port: PortId) {
        if let Some(port) = self.0.get_mut(&port) {
            port.device = None;
            port.session = None;
        }
    }

    /// Closes what belongs to ports that are no longer wanted.
    pub(super) fn keep_only(&mut self, config: &FabricConfig) {
        self.0.retain(|port, _| owner(config, *port).is_some());
    }

    /// Has a front end said who it is, and not gone since?
    pub(super) fn has_session(&self, port: PortId) -> bool {
        self.0.get(&port).is_some_and(|port| port.session.is_some())
    }

    /// The messages that give a new fabric the sockets by which programs of the host reach VMCI devices. They are not answered.
    pub(super) fn host_sockets(&self) -> Vec<Attach> {
        let sockets = self.0.iter().filter_map(|(&port, held)| Some((port, held.host.clone()?)));
        sockets.map(|(port, listener)| (port, ToFabric::HostListener { port }, vec![listener])).collect()
    }

    /// The messages that give a new fabric everything.
    pub(super) fn messages(&self) -> Vec<Attach> {
        self.0.keys().flat_map(|&port| self.messages_of(port)).collect()
    }

    /// The messages that give a new fabric what a port has. A listening socket goes before the session that was begun on it.
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

    /// Ports that have anything.
    pub(super) fn ports(&self) -> Vec<PortId> {
        self.0.iter().filter(|(_, port)| port.serves()).map(|(&id, _)| id).collect()
    }
}
