//! A configured port or VMCI device as the control thread sees it: what is attached, and what there is to tell about it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{SocketFlags, accept_with};
use taut_api::fabric::SessionRecord;
use taut_api::fabric::config::{PortConfig, PortId, PortKind, SocketConfig};
use taut_api::fabric::message::Attachment;
use taut_api::link::Link;
use tracing::{info, warn};

use super::attach::{AttachError, Prepared};
use super::quiet::Quiet;
use super::token;
use crate::net::software_offload::Offloads;
use crate::port::Port;
use crate::port::vnic_device::VnicDevice;
use crate::sys::epoll::{Epoll, EventFlags, Watched, set_nonblocking};
use crate::vhost_user::{Device, Session};

/// What an entry stands for.
#[derive(Debug)]
pub(super) enum Behind {
    /// A port of the switch.
    Port(PortConfig, VnicDevice),
    /// A VMCI device.
    Socket(SocketConfig),
}

impl Behind {
    /// Whose it is.
    pub(super) fn owner(&self) -> &str {
        match self {
            Self::Port(config, _) => &config.owner,
            Self::Socket(config) => &config.owner,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Port(PortConfig { kind: PortKind::VhostUser { .. }, .. }, _) => "a vNIC's port",
            Self::Port(PortConfig { kind: PortKind::Tap { .. }, .. }, _) => "a TAP port",
            Self::Port(PortConfig { kind: PortKind::Stream, .. }, _) => "an emulated card's port",
            Self::Socket(_) => "a VMCI device",
        }
    }

    /// Is it a device for vhost-user sessions?
    fn has_front_end(&self) -> bool {
        match self {
            Self::Port(config, _) => matches!(config.kind, PortKind::VhostUser { .. }),
            Self::Socket(_) => true,
        }
    }

    /// The emulated card's port that it is.
    fn stream(&self) -> Option<&VnicDevice> {
        match self {
            Self::Port(PortConfig { kind: PortKind::Stream, .. }, device) => Some(device),
            _ => None,
        }
    }
}

/// A port or a VMCI device, and what is attached to it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) behind: Behind,
    /// What sessions drive.
    pub(super) device: Arc<dyn Device>,
    pub(super) session: Option<Watched<Session>>,
    /// Front ends connect here, one at a time.
    listener: Option<Arc<OwnedFd>>,
    /// Watched while nobody is connected.
    listening: Option<Watched<Arc<OwnedFd>>>,
    /// A TAP or a stream is attached.
    plugged: bool,
    /// What is to be attached when this fabric takes over from another.
    pub(super) prepared: Vec<Prepared>,
    /// Why the last thing that was attached no longer is.
    lost: Option<String>,
    /// What was told last.
    told: Option<State>,
    log: Quiet,
}

/// What is told about a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) link: Link,
    pub(super) reason: Option<String>,
    pub(super) attached: bool,
}

impl Entry {
    pub(super) fn of_port(config: PortConfig, device: VnicDevice) -> Self {
        let driven = Arc::new(device.clone());
        Self::new(Behind::Port(config, device), driven)
    }

    pub(super) fn of_socket(config: SocketConfig, device: Arc<dyn Device>) -> Self {
        Self::new(Behind::Socket(config), device)
    }

    fn new(behind: Behind, device: Arc<dyn Device>) -> Self {
        Self {
            behind,
            device,
            session: None,
            listener: None,
            listening: None,
            plugged: false,
            prepared: Vec::new(),
            lost: None,
            told: None,
            log: Quiet::default(),
        }
    }

    /// The port of the switch that it is.
    pub(super) fn port(&self) -> Option<(&PortConfig, &Arc<Port>)> {
        match &self.behind {
            Behind::Port(config, device) => Some((config, &device.port)),
            Behind::Socket(_) => None,
        }
    }

    pub(super) fn id(&self) -> PortId {
        self.device.id()
    }

    /// Puts `via` in the place of whatever is attached. A session leaves the listening socket that it was begun on.
    pub(super) fn attach(
        &mut self,
        via: Attachment,
        mut fds: Vec<OwnedFd>,
        events: &Epoll,
    ) -> Result<(), AttachError> {
        let listener = self.listener.take().filter(|_| matches!(via, Attachment::Session(_)));
        self.detach();
        self.listener = listener;
        let mut one = || match fds.len() {
            1 => Ok(fds.remove(0)),
            got => Err(AttachError::Descriptors { got, wanted: 1 }),
        };
        let has_socket = self.behind.has_front_end() || self.behind.stream().is_some();
        match (via, &self.behind) {
            (Attachment::Connected, _) if has_socket => self.connect(one()?, events),
            (Attachment::Listening, _) if has_socket => {
                let listener = one()?;
                set_nonblocking(&listener)?;
                self.listener = Some(Arc::new(listener));
                self.listen(events)
            }
            (
                Attachment::Tap { uso },
                Behind::Port(PortConfig { kind: PortKind::Tap { offloads }, .. }, device),
            ) => {
                let takes = Offloads { uso4: uso, uso6: uso, ..Offloads::TCP };
                let offloads = if *offloads { takes } else { Offloads::NONE };
                device.port.attach_tap(one()?, offloads, &device.mailboxes)?;
                self.plugged = true;
                Ok(())
            }
            (Attachment::Session(record), _) => {
                let session = self.resume(record, fds)?;
                self.go_on(session, events)
            }
            (Attachment::Tap { .. }, _) => Err(self.unfit("a TAP device")),
            (Attachment::Connected | Attachment::Listening, _) => Err(self.unfit("a socket")),
        }
    }

    fn unfit(&self, what: &'static str) -> AttachError {
        AttachError::Kind { what, port: self.behind.name() }
    }

    /// A front end has connected to the listening socket.
    pub(super) fn accept(&mut self, events: &Epoll) -> Result<(), AttachError> {
        let Some(listener) = &self.listener else { return Ok(()) };
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                self.listening = None;
                self.connect(socket, events)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {
                Ok(())
            }
            Err(error) => Err(AttachError::Descriptor(error.into())),
        }
    }

    fn connect(&mut self, socket: OwnedFd, events: &Epoll) -> Result<(), AttachError> {
        if let Some(device) = self.behind.stream() {
            device.port.attach_stream(socket, &device.mailboxes)?;
            self.plugged = true;
            return Ok(());
        }
        self.watch(Session::new(socket, Arc::clone(&self.device)), events)
    }

    /// A session that another fabric began, not yet running.
    pub(super) fn resume(&self, record: SessionRecord, fds: Vec<OwnedFd>) -> Result<Session, AttachError> {
        if !self.behind.has_front_end() {
            return Err(self.unfit("a vhost-user session"));
        }
        Ok(Session::resume(record, fds, Arc::clone(&self.device))?)
    }

    /// Runs a session that another fabric began. A listening socket that it was begun on waits for the next.
    pub(super) fn go_on(&mut self, mut session: Session, events: &Epoll) -> Result<(), AttachError> {
        self.listening = None;
        session.go_on()?;
        self.watch(session, events)
    }

    fn watch(&mut self, session: Session, events: &Epoll) -> Result<(), AttachError> {
        let token = token::FRONT_END | u64::from(self.id().0);
        self.session = Some(events.watch(session, token, EventFlags::IN)?);
        Ok(())
    }

    fn listen(&mut self, events: &Epoll) -> Result<(), AttachError> {
        if let Some(listener) = &self.listener {
            let token = token::LISTENER | u64::from(self.id().0);
            self.listening = Some(events.watch(Arc::clone(listener), token, EventFlags::IN)?);
        }
        Ok(())
    }

    /// Takes off whatever is attached.
    pub(super) fn detach(&mut self) {
        let had_session = self.session.take().is_some();
        self.listening = None;
        self.listener = None;
        self.plugged = false;
        self.lost = None;
        self.device.stop();
        if had_session {
            self.device.gone();
        }
    }

    /// Ends the session, if there is one, also for the front end; tells whether there was one.
    pub(super) fn end_session(&mut self) -> bool {
        let Some(session) = self.session.take() else { return false };
        session.end();
        drop(session);
        self.device.gone();
        true
    }

    /// What was connected is gone; on a listening socket the next one is awaited.
    pub(super) fn lose(&mut self, reason: String, events: &Epoll) {
        if let Some(left_out) = self.log.permit(Instant::now()) {
            info!(port = self.id().0, owner = self.behind.owner(), left_out, "ended: {reason}");
        }
        self.end_session();
        self.plugged = false;
        self.device.stop();
        self.lost = Some(reason);
        if let Err(error) = self.listen(events) {
            self.listener = None;
            self.lost = Some(error.to_string());
        }
    }

    /// A worker took a queue's end out, because it failed.
    pub(super) fn fail(&mut self, queue: usize, failure: crate::port::Failure, events: &Epoll) {
        if self.device.runs(queue) {
            // It has been replaced since.
            return;
        }
        match (&mut self.session, failure) {
            (Some(session), crate::port::Failure::Ring(fault)) => {
                if let Some(left_out) = self.log.permit(Instant::now()) {
                    let (port, owner) = (self.device.id().0, self.behind.owner());
                    warn!(port, owner, queue, left_out, "the guest broke its ring: {fault}");
                }
                session.break_rings(queue, fault.into());
            }
            (None, failure) if self.plugged => self.lose(failure.to_string(), events),
            _ => {}
        }
    }

    /// Logs what the guest has done.
    pub(super) fn warn(&mut self, now: Instant, what: &str) {
        if let Some(left_out) = self.log.permit(now) {
            warn!(port = self.id().0, owner = self.behind.owner(), left_out, "{what}");
        }
    }

    /// What is to be told, if it is not what was told last.
    pub(super) fn news(&mut self) -> Option<State> {
        let state = self.state();
        if self.told.as_ref() == Some(&state) {
            return None;
        }
        self.told = Some(state.clone());
        Some(state)
    }

    /// Tell everything again.
    pub(super) fn forget_told(&mut self) {
        self.told = None;
    }

    fn state(&self) -> State {
        let attached = self.session.is_some() || self.listener.is_some() || self.plugged;
        let fault = self.session.as_ref().and_then(|session| session.fault());
        let (link, reason) = match fault {
            Some(fault) => (Link::Broken, Some(fault.to_string())),
            None if self.device.is_up() => (Link::Up, None),
            None => (Link::Down, Some(self.why_down())),
        };
        State { link, reason, attached }
    }

    fn why_down(&self) -> String {
        match (&self.session, &self.lost) {
            // QEMU passes over memory that it cannot share, without a word: it looks like a driver that does nothing.
            (Some(session), _) if session.record().memory.is_empty() => {
                "no guest memory was shared: the guest's driver has not started, or its VM's memory is private (QEMU needs \
                 memory-backend-memfd with share=on)"
                    .to_owned()
            }
            (Some(_), _) => "the guest's driver has not started its rings".to_owned(),
            (None, Some(reason)) => reason.clone(),
            (None, None) if self.listener.is_some() => "no front end has connected".to_owned(),
            (None, None) => "nothing is attached".to_owned(),
        }
    }

    /// Remembers why an attachment failed.
    pub(super) fn refuse(&mut self, error: &AttachError) {
        self.prepared.clear();
        self.detach();
        self.lost = Some(error.to_string());
        if let Some(left_out) = self.log.permit(Instant::now()) {
            warn!(port = self.id().0, owner = self.behind.owner(), left_out, "cannot attach: {error}");
        }
    }
}
