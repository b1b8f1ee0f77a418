//! A configured port as the control thread sees it: what is attached, and what there is to tell about it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::net::{SocketFlags, accept_with};
use taut_api::fabric::SessionRecord;
use taut_api::fabric::config::{PortConfig, PortKind};
use taut_api::fabric::message::Attachment;
use taut_api::vm::Link;
use tracing::{info, warn};

use super::quiet::Quiet;
use super::standby::Prepared;
use super::token;
use crate::epoll::{Epoll, EventFlags, Watched, set_nonblocking};
use crate::port::Port;
use crate::port::vnic_device::VnicDevice;
use crate::switch::software_offload::Offloads;
use crate::vhost_user::{Device, Session, SessionError};
use crate::worker::desk::Desks;

/// A port and what is attached to it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) config: PortConfig,
    pub(super) port: Arc<Port>,
    pub(super) session: Option<Watched<Session>>,
    /// Front ends connect here, one at a time.
    listener: Option<Arc<OwnedFd>>,
    /// Watched while nobody is connected.
    listening: Option<Watched<Arc<OwnedFd>>>,
    /// A TAP or a stream is attached.
    device: bool,
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

pub(super) fn name_of(kind: PortKind) -> &'static str {
    match kind {
        PortKind::VhostUser { .. } => "a vNIC's port",
        PortKind::Tap { .. } => "a TAP port",
        PortKind::Stream => "an emulated card's port",
    }
}

/// Why something cannot be attached.
#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    #[error("{got} descriptors came with an attachment that takes {wanted}")]
    Descriptors { got: usize, wanted: usize },
    #[error("{what} cannot be attached to {port}")]
    Kind { what: &'static str, port: &'static str },
    #[error("the descriptor cannot be used: {0}")]
    Descriptor(#[from] io::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Where events are waited for: the control thread's epoll set, and the workers'.
#[derive(Debug, Clone, Copy)]
pub(super) struct Events<'a> {
    pub(super) control: &'a Epoll,
    pub(super) workers: &'a Arc<Desks>,
}

impl Entry {
    pub(super) fn new(config: PortConfig, port: Arc<Port>) -> Self {
        Self {
            config,
            port,
            session: None,
            listener: None,
            listening: None,
            device: false,
            prepared: Vec::new(),
            lost: None,
            told: None,
            log: Quiet::default(),
        }
    }

    /// Puts `via` in the place of whatever is attached. A session leaves the listening socket that it was begun on.
    pub(super) fn attach(
        &mut self,
        via: Attachment,
        mut fds: Vec<OwnedFd>,
        events: Events<'_>,
    ) -> Result<(), AttachError> {
        let listener = self.listener.take().filter(|_| matches!(via, Attachment::Session(_)));
        self.detach();
        self.listener = listener;
        let mut one = || match fds.len() {
            1 => Ok(fds.remove(0)),
            got => Err(AttachError::Descriptors { got, wanted: 1 }),
        };
        let kind = self.config.kind;
        let unfit = |what| Err(AttachError::Kind { what, port: name_of(kind) });
        match (via, kind) {
            (Attachment::Connected, PortKind::VhostUser { .. } | PortKind::Stream) => {
                self.connect(one()?, events)
            }
            (Attachment::Listening, PortKind::VhostUser { .. } | PortKind::Stream) => {
                let listener = one()?;
                set_nonblocking(&listener)?;
                self.listener = Some(Arc::new(listener));
                self.listen(events)
            }
            (Attachment::Tap { uso }, PortKind::Tap { offloads }) => {
                let takes = Offloads { uso4: uso, uso6: uso, ..Offloads::TCP };
                self.port.attach_tap(
                    one()?,
                    if offloads { takes } else { Offloads::NONE },
                    events.workers,
                )?;
                self.device = true;
                Ok(())
            }
            (Attachment::Session(record), PortKind::VhostUser { .. }) => {
                let session = self.resume(record, fds, events)?;
                self.go_on(session, events)
            }
            (Attachment::Tap { .. }, _) => unfit("a TAP device"),
            (Attachment::Session(_), _) => unfit("a vhost-user session"),
            (Attachment::Connected | Attachment::Listening, _) => unfit("a socket"),
        }
    }

    /// A front end has connected to the listening socket.
    pub(super) fn accept(&mut self, events: Events<'_>) -> Result<(), AttachError> {
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

    fn connect(&mut self, socket: OwnedFd, events: Events<'_>) -> Result<(), AttachError> {
        if self.config.kind == PortKind::Stream {
            self.port.attach_stream(socket, events.workers)?;
            self.device = true;
            return Ok(());
        }
        self.watch(Session::new(socket, self.device(events)), events)
    }

    /// A session that another fabric began, not yet running.
    pub(super) fn resume(
        &self,
        record: SessionRecord,
        fds: Vec<OwnedFd>,
        events: Events<'_>,
    ) -> Result<Session, AttachError> {
        Ok(Session::resume(record, fds, self.device(events))?)
    }

    /// Runs a session that another fabric began. A listening socket that it was begun on waits for the next.
    pub(super) fn go_on(&mut self, mut session: Session, events: Events<'_>) -> Result<(), AttachError> {
        self.listening = None;
        session.go_on()?;
        self.watch(session, events)
    }

    /// What a front end's session drives.
    fn device(&self, events: Events<'_>) -> Arc<dyn Device> {
        Arc::new(VnicDevice { port: Arc::clone(&self.port), desks: Arc::clone(events.workers) })
    }

    fn watch(&mut self, session: Session, events: Events<'_>) -> Result<(), AttachError> {
        let token = token::FRONT_END | u64::from(self.config.id.0);
        self.session = Some(events.control.watch(session, token, EventFlags::IN)?);
        Ok(())
    }

    fn listen(&mut self, events: Events<'_>) -> Result<(), AttachError> {
        if let Some(listener) = &self.listener {
            let token = token::LISTENER | u64::from(self.config.id.0);
            self.listening = Some(events.control.watch(Arc::clone(listener), token, EventFlags::IN)?);
        }
        Ok(())
    }

    /// Takes off whatever is attached.
    pub(super) fn detach(&mut self) {
        self.session = None;
        self.listening = None;
        self.listener = None;
        self.device = false;
        self.lost = None;
        self.port.stop();
    }

    /// Ends the session, if there is one, also for the front end; tells whether there was one.
    pub(super) fn end_session(&mut self) -> bool {
        let session = self.session.take();
        if let Some(session) = &session {
            session.end();
        }
        session.is_some()
    }

    /// What was connected is gone; on a listening socket the next one is awaited.
    pub(super) fn lose(&mut self, reason: String, events: Events<'_>) {
        if let Some(left_out) = self.log.permit(Instant::now()) {
            info!(port = self.config.id.0, owner = self.config.owner, left_out, "ended: {reason}");
        }
        self.end_session();
        self.device = false;
        self.port.stop();
        self.lost = Some(reason);
        if let Err(error) = self.listen(events) {
            self.listener = None;
            self.lost = Some(error.to_string());
        }
    }

    /// A worker took a queue's end out, because it failed.
    pub(super) fn fail(&mut self, queue: usize, failure: crate::port::Failure, events: Events<'_>) {
        if self.port.runs(queue) {
            // It has been replaced since.
            return;
        }
        match (&mut self.session, failure) {
            (Some(session), crate::port::Failure::Ring(fault)) => {
                if let Some(left_out) = self.log.permit(Instant::now()) {
                    let owner = &self.config.owner;
                    warn!(
                        port = self.config.id.0,
                        owner, queue, left_out, "the guest broke its ring: {fault}"
                    );
                }
                session.break_rings(queue, fault.into());
            }
            (None, failure) if self.device => self.lose(failure.to_string(), events),
            _ => {}
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
        let attached = self.session.is_some() || self.listener.is_some() || self.device;
        let fault = self.session.as_ref().and_then(|session| session.fault());
        let (link, reason) = match fault {
            Some(fault) => (Link::Broken, Some(fault.to_string())),
            None if self.port.is_up() => (Link::Up, None),
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
            warn!(port = self.config.id.0, owner = self.config.owner, left_out, "cannot attach: {error}");
        }
    }
}
