//! A configured port or vsock device as the control thread sees it.

mod card;
mod kind;
mod status;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::SocketFlags;
use taut_api::fabric::config::{PortConfig, PortId, PortKind, SocketConfig};
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{ClosingQueue, ForeignFd, SessionRecord, keep_urgent};
use tracing::{info, warn};

use super::attach::{AttachError, Prepared};
use super::log_limit::LogLimit;
use super::queue_pair_memory::RegionFd;
use super::token;
use crate::net::queue::QueueIdx;
use crate::net::software_offload::Offloads;
use crate::port::vnic_device::VnicDevice;
use crate::port::{Failure, Port};
use crate::sys::epoll::{Epoll, EventFlags, Watched, set_nonblocking};
use crate::vhost_user::{Device, Session};
use card::Card;
pub(super) use kind::Kind;
pub(super) use status::Status;

/// A device that serves a port without a session.
#[derive(Debug)]
enum Plugged {
    /// A TAP device, as `tautd` attached it.
    Device(Attachment, Arc<ForeignFd>),
    /// A card of the host, as `tautd` attached it.
    Card(Card),
    /// The stream of an emulated card.
    Stream,
}

/// A port or a vsock device, and what is attached to it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// The device that sessions drive.
    pub(super) device: Arc<dyn Device>,
    /// Closes what front ends send.
    pub(super) strangers: ClosingQueue,
    pub(super) session: Option<Watched<Session>>,
    /// The socket to which front ends connect, one at a time.
    listener: Option<Arc<ForeignFd>>,
    /// The same socket, watched while no front end is connected.
    listening: Option<Watched<Arc<ForeignFd>>>,
    /// The device that serves the port without a session.
    plugged: Option<Plugged>,
    /// Attachments to serve when this process takes over from another.
    pub(super) prepared: Vec<Prepared>,
    /// Memory for queue pairs, which a vsock device has whether or not a front end is connected.
    pub(super) queue_pairs: Option<RegionFd>,
    /// The reason why memory that came for the configured queue pairs is not used.
    pub(super) unused_queue_pairs: Option<String>,
    /// The reason why the last attachment ended.
    lost: Option<String>,
    /// The uplink has a link, but leads nowhere.
    pub(super) has_no_path: bool,
    /// The status that was reported last.
    reported: Option<Status>,
    log: LogLimit,
}

impl Entry {
    /// The entry of a port.
    pub(super) fn of_port(config: PortConfig, device: VnicDevice) -> Self {
        let driven = Arc::new(device.clone());
        Self::new(Kind::Port(config, device), driven)
    }

    /// The entry of a vsock device.
    pub(super) fn of_socket(config: SocketConfig, device: Arc<dyn Device>) -> Self {
        Self::new(Kind::Socket(config), device)
    }

    fn new(kind: Kind, device: Arc<dyn Device>) -> Self {
        Self {
            kind,
            strangers: ClosingQueue::new(device.id()),
            device,
            session: None,
            listener: None,
            listening: None,
            plugged: None,
            prepared: Vec::new(),
            queue_pairs: None,
            unused_queue_pairs: None,
            lost: None,
            has_no_path: false,
            reported: None,
            log: LogLimit::default(),
        }
    }

    /// The port of the switch; `None` for a vsock device.
    pub(super) fn port(&self) -> Option<(&PortConfig, &Arc<Port>)> {
        match &self.kind {
            Kind::Port(config, device) => Some((config, &device.port)),
            Kind::Socket(_) => None,
        }
    }

    /// Returns whether a port receives frames: a guest has started its rings, or a device is
    /// attached, and the policy accepts its address.
    pub(super) fn receives(&self) -> bool {
        self.port().is_some_and(|(config, port)| port.receiving() != 0 && !config.is_cut_off())
    }

    /// Returns the number of the start of a port's first queue, which gets the fabric's own frames;
    /// `None` if the port receives none.
    pub(super) fn first_start(&self) -> Option<u32> {
        self.port().filter(|_| self.receives()).map(|(_, port)| port.first_starts())
    }

    /// Tells whether something is attached whose other end sends more descriptors than can be
    /// closed.
    pub(super) fn is_clogged(&self) -> bool {
        let attached = self.session.is_some() || self.listener.is_some() || self.plugged.is_some();
        attached && self.strangers.is_clogged()
    }

    fn id(&self) -> PortId {
        self.device.id()
    }

    /// The device or the listening socket, as `tautd` attached it.
    pub(super) fn device_or_listener(&self) -> Option<(Attachment, Vec<BorrowedFd<'_>>)> {
        match (&self.plugged, &self.listener) {
            (Some(Plugged::Device(via, device)), _) => Some((via.clone(), vec![device.as_fd()])),
            (Some(Plugged::Card(card)), _) => Some((card.via.clone(), card.descriptors())),
            (_, Some(listener)) => Some((Attachment::Listening, vec![listener.as_fd()])),
            (Some(Plugged::Stream) | None, None) => None,
        }
    }

    /// Returns whether the card of an uplink has a link; `None` if it is not known yet.
    pub(super) fn has_link(&self) -> Option<bool> {
        match &self.plugged {
            Some(Plugged::Card(card)) => card.carrier.is_present(),
            _ if self.lost.is_some() => Some(false),
            _ => None,
        }
    }

    /// Replaces what is attached by `via`. A session keeps the listening socket on which it was
    /// begun.
    pub(super) fn attach(
        &mut self,
        via: Attachment,
        mut fds: Vec<ForeignFd>,
        events: &Epoll,
    ) -> Result<(), AttachError> {
        let listener = self.listener.take().filter(|_| matches!(via, Attachment::Session(_)));
        self.detach();
        self.listener = listener;
        let mut one = || match fds.len() {
            1 => Ok(fds.remove(0)),
            got => Err(AttachError::Descriptors { got, wanted: 1 }),
        };
        let has_socket = self.kind.has_front_end() || self.kind.stream().is_some();
        match (via, &self.kind) {
            (Attachment::Connected, _) if has_socket => {
                let socket = one()?;
                // A `tautd` of an earlier version does not set the option.
                keep_urgent(&socket).map_err(io::Error::from)?;
                self.connect(socket, events)
            }
            (Attachment::Listening, _) if has_socket => {
                let listener = one()?;
                set_nonblocking(&listener)?;
                self.listener = Some(Arc::new(listener));
                self.listen(events)
            }
            (
                Attachment::Tap { uso },
                Kind::Port(PortConfig { kind: PortKind::Tap { offloads }, .. }, device),
            ) => {
                let accepted = Offloads { uso4: uso, uso6: uso, ..Offloads::TCP };
                let offloads = if *offloads { accepted } else { Offloads::NONE };
                let mut tap = one()?;
                tap.admit();
                let tap = Arc::new(tap);
                device.port.attach_tap(Arc::clone(&tap), offloads, &device.mailboxes)?;
                self.plugged = Some(Plugged::Device(Attachment::Tap { uso }, tap));
                Ok(())
            }
            (
                via @ (Attachment::Packet(_) | Attachment::Xdp(_)),
                Kind::Port(PortConfig { kind: PortKind::Uplink | PortKind::Netdev, .. }, device),
            ) => {
                self.plugged = Some(Plugged::Card(Card::plug(device, via, fds)?));
                Ok(())
            }
            (Attachment::Session(record), _) => {
                let session = self.resume(record, fds)?;
                self.serve_resumed(session, events)
            }
            (Attachment::Tap { .. }, _) => Err(self.unfit("a TAP device")),
            (Attachment::Packet(_), _) => Err(self.unfit("a packet socket")),
            (Attachment::Xdp(_), _) => Err(self.unfit("an XDP socket")),
            (Attachment::Connected | Attachment::Listening, _) => Err(self.unfit("a socket")),
        }
    }

    fn unfit(&self, what: &'static str) -> AttachError {
        AttachError::Kind { what, port: self.kind.name() }
    }

    /// Accepts a front end at the listening socket.
    pub(super) fn accept(&mut self, events: &Epoll) -> Result<(), AttachError> {
        let Some(listener) = &self.listener else { return Ok(()) };
        match listener.accept(SocketFlags::empty()) {
            Ok(socket) => {
                self.listening = None;
                self.connect(socket, events)
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(()),
            Err(error) => Err(AttachError::Descriptor(error.into())),
        }
    }

    /// Attaches a connected socket: the stream of an emulated card, or a new session.
    fn connect(&mut self, socket: ForeignFd, events: &Epoll) -> Result<(), AttachError> {
        if let Some(device) = self.kind.stream() {
            device.port.attach_stream(socket, &device.mailboxes)?;
            self.plugged = Some(Plugged::Stream);
            return Ok(());
        }
        self.watch(Session::new(socket, Arc::clone(&self.device), self.kind.rules()), events)
    }

    /// Restores a session that another process began, without running its rings yet.
    pub(super) fn resume(&self, record: SessionRecord, fds: Vec<ForeignFd>) -> Result<Session, AttachError> {
        if !self.kind.has_front_end() {
            return Err(self.unfit("a vhost-user session"));
        }
        Ok(Session::resume(record, fds, Arc::clone(&self.device), self.kind.rules())?)
    }

    /// Runs a restored session. Its listening socket waits for the next front end.
    pub(super) fn serve_resumed(&mut self, mut session: Session, events: &Epoll) -> Result<(), AttachError> {
        self.listening = None;
        session.start_resumed()?;
        self.watch(session, events)
    }

    fn watch(&mut self, session: Session, events: &Epoll) -> Result<(), AttachError> {
        let token = token::FRONT_END | u64::from(self.id().0);
        self.session = Some(events.watch(session, token, EventFlags::IN)?);
        Ok(())
    }

    /// Waits for a front end at the listening socket, if there is one.
    fn listen(&mut self, events: &Epoll) -> Result<(), AttachError> {
        if let Some(listener) = &self.listener {
            let token = token::LISTENER | u64::from(self.id().0);
            self.listening = Some(events.watch(Arc::clone(listener), token, EventFlags::IN)?);
        }
        Ok(())
    }

    /// Removes whatever is attached.
    pub(super) fn detach(&mut self) {
        let had_session = self.session.take().is_some();
        self.listening = None;
        self.listener = None;
        self.plugged = None;
        self.lost = None;
        self.device.stop();
        if had_session {
            self.device.gone();
        }
    }

    /// Ends the session for the front end too. Returns `false` if there is none.
    pub(super) fn end_session(&mut self) -> bool {
        let Some(session) = self.session.take() else { return false };
        session.end();
        drop(session);
        self.device.gone();
        true
    }

    /// Ends an attachment that was lost, and waits for the next front end at the listening socket.
    pub(super) fn lose(&mut self, reason: String, events: &Epoll) {
        if let Some(left_out) = self.log.permit(Instant::now()) {
            info!(port = self.id().0, owner = self.kind.owner(), left_out, "ended: {reason}");
        }
        self.end_session();
        self.plugged = None;
        self.device.stop();
        self.lost = Some(reason);
        if let Err(error) = self.listen(events) {
            self.listener = None;
            self.lost = Some(error.to_string());
        }
    }

    /// Ends the session of a front end that has harmed this process, and accepts no other one.
    pub(super) fn shut_out(&mut self, reason: String) {
        self.warn(Instant::now(), &reason);
        self.end_session();
        self.detach();
        self.lost = Some(reason);
    }

    /// Handles a queue that failed; the worker has removed its end.
    pub(super) fn fail(&mut self, queue: QueueIdx, failure: Failure, events: &Epoll) {
        if self.device.runs(queue) {
            // Another end has replaced the failed one since.
            return;
        }
        match (&mut self.session, failure) {
            (Some(session), Failure::Ring(fault)) => {
                if let Some(left_out) = self.log.permit(Instant::now()) {
                    let (port, owner) = (self.device.id().0, self.kind.owner());
                    warn!(port, owner, queue = queue.0, left_out, "the guest broke its ring: {fault}");
                }
                session.break_rings(queue, fault.into());
            }
            (None, failure) if self.plugged.is_some() => self.lose(failure.to_string(), events),
            _ => {}
        }
    }

    /// Logs a violation by the guest.
    pub(super) fn warn(&mut self, now: Instant, what: &str) {
        if let Some(left_out) = self.log.permit(now) {
            warn!(port = self.id().0, owner = self.kind.owner(), left_out, "{what}");
        }
    }

    /// Removes whatever is attached, and keeps the reason why its attachment failed.
    pub(super) fn refuse(&mut self, error: &AttachError) {
        self.prepared.clear();
        self.detach();
        self.lost = Some(error.to_string());
        if let Some(left_out) = self.log.permit(Instant::now()) {
            warn!(port = self.id().0, owner = self.kind.owner(), left_out, "cannot attach: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
