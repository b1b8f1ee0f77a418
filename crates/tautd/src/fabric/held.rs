//! Duplicates of everything that ports work on, for the next fabric.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::message::Attachment;
use taut_api::fabric::{FabricConfig, PortId, SessionRecord, ToFabric};

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
}

impl Held {
    /// Keeps a device or listening socket. A plain connection is not kept: what was negotiated on it comes as a session, and
    /// one without a session is made anew.
    pub(super) fn keep(&mut self, port: PortId, via: &Attachment, fd: Arc<OwnedFd>) {
        let device = match via {
            Attachment::Tap { .. } | Attachment::Listening => Some((via.clone(), fd)),
            Attachment::Connected | Attachment::Session(_) => None,
        };
        self.0.insert(port, Port { device, session: None });
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
        self.0.remove(&port);
    }

    /// Closes what belongs to ports that are no longer wanted.
    pub(super) fn keep_only(&mut self, config: &FabricConfig) {
        self.0.retain(|port, _| config.ports.iter().any(|wanted| wanted.id == *port));
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
        let has = |port: &Port| port.device.is_some() || port.session.is_some();
        self.0.iter().filter(|(_, port)| has(port)).map(|(&id, _)| id).collect()
    }
}
