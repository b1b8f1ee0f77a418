//! The control thread: `tautd`'s wishes, and the front ends' requests.
//!
//! It alone changes what is attached to ports; workers only move frames. Without a `tautd` it goes on serving front ends.
//! Before a front end gets an answer, and before the thread waits again, the changed session has been passed on: what a
//! front end relies on is never known to this process alone.

mod acceptable;
mod attach;
mod configure;
mod entry;
mod peer;
mod quiet;
mod standby;
mod token;
mod vmci;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{SocketFlags, accept_with};
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{FabricConfig, FromFabric, PROTOCOL, PortId, ToFabric};
use taut_api::link::Link;
use taut_virtq::counters::SharedWords;
use tracing::{info, warn};

use crate::sys::epoll::{Epoll, EventFlags, Ready, Waker, Watched, set_nonblocking};
use crate::vhost_user::{Session, SessionError};
use crate::worker::Workers;
use entry::Entry;
use peer::Peer;
use vmci::Vmci;

/// Requests of one front end in a row; then others have their turn.
const REQUESTS: usize = 64;

/// How long a new process waits for the `tautd` that started it: one that was killed before it had written down the
/// process number leaves nobody who knows of it.
const FIRST_CONTACT: Duration = Duration::from_secs(60);

/// The data plane, as its control thread sees it.
#[derive(Debug)]
pub struct Control {
    events: Epoll,
    listener: Watched<OwnedFd>,
    _alarm: Watched<Waker>,
    /// Somebody has connected once: then traffic goes on without a connection, for ever.
    known: bool,
    peer: Option<Peer>,
    words: Arc<SharedWords>,
    workers: Workers,
    vmci: Vmci,
    entries: BTreeMap<PortId, Entry>,
    config: FabricConfig,
    /// Another fabric serves; this one only prepares.
    standby: bool,
}

impl Control {
    /// A data plane without ports. `listener` is where `tautd` connects, `words` the mapped counters file.
    pub fn new(listener: OwnedFd, words: SharedWords) -> io::Result<Self> {
        let words = Arc::new(words);
        let workers = Workers::start(&words)?;
        let events = Epoll::new()?;
        let vmci = Vmci::start(&words, &events)?;
        set_nonblocking(&listener)?;
        Ok(Self {
            listener: events.watch(listener, token::CONTROL, EventFlags::IN)?,
            _alarm: events.watch(workers.alarm().clone(), token::ALARM, EventFlags::IN)?,
            events,
            known: false,
            peer: None,
            words,
            workers,
            vmci,
            entries: BTreeMap::new(),
            config: FabricConfig::default(),
            standby: false,
        })
    }

    /// Serves until `tautd` says [`ToFabric::Quit`].
    pub fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::<Ready>::new();
        let begun = Instant::now();
        loop {
            self.events.wait(&mut ready, (!self.known).then_some(FIRST_CONTACT))?;
            if !self.known && begun.elapsed() >= FIRST_CONTACT {
                info!("nobody has connected for {FIRST_CONTACT:?}: whoever started this process is gone");
                return Ok(());
            }
            for &(token, _) in &ready {
                let port = PortId(token as u16);
                match token & token::KIND {
                    token::CONTROL => self.accept_peer(),
                    token::PEER if self.serve_peer() => {
                        self.quit();
                        return Ok(());
                    }
                    token::ALARM => self.incidents(),
                    token::VMCI => self.vmci_news(),
                    token::FRONT_END => self.serve_front_end(port),
                    token::LISTENER => self.accept_front_end(port),
                    _ => {}
                }
                if self.standby && self.peer.is_none() {
                    // Nobody will ever let it begin.
                    return Ok(());
                }
                self.tell_news();
            }
        }
    }

    /// The newest connection wins.
    fn accept_peer(&mut self) {
        let socket = match accept_with(&*self.listener, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(error) => return warn!("cannot accept tautd's connection: {error}"),
        };
        self.peer = None;
        self.known = true;
        match Peer::new(socket, &self.events, token::PEER) {
            Ok(peer) => self.peer = Some(peer),
            Err(error) => warn!("cannot serve tautd's connection: {error}"),
        }
    }

    /// Carries out one message of `tautd`'s; `true` for the last one.
    fn serve_peer(&mut self) -> bool {
        let Some(peer) = self.peer.as_ref().filter(|peer| peer.is_readable()) else { return false };
        let (message, fds) = match peer.receive() {
            Ok(Some(received)) => received,
            Ok(None) => {
                info!("tautd has disconnected; traffic goes on");
                self.peer = None;
                return false;
            }
            Err(error) => {
                warn!("tautd's connection failed: {error}; traffic goes on");
                self.peer = None;
                return false;
            }
        };
        match message {
            ToFabric::Hello { protocol } => self.greet(protocol),
            _ if !self.greeted() => {
                warn!("tautd did not say hello; disconnected");
                self.peer = None;
            }
            ToFabric::StandBy => self.stand_by(),
            ToFabric::TakeOver { ports } => self.take_over(&ports.into_iter().collect()),
            ToFabric::Configure(config) => self.configure(config),
            ToFabric::Attach { port, via } if self.standby => self.prepare(port, via, fds),
            ToFabric::Attach { port, via } => self.attach(port, via, fds),
            ToFabric::HostListener { port } => self.host_listener(port, fds),
            ToFabric::HostConnected { port, request } => self.vmci.answer(port, request, fds),
            ToFabric::HostStreams { connections } => self.host_streams(connections, fds),
            ToFabric::Quit => return true,
        }
        false
    }

    fn greeted(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.greeted)
    }

    fn greet(&mut self, protocol: u32) {
        let welcome = FromFabric::Welcome {
            protocol: PROTOCOL,
            pid: std::process::id(),
            revision: self.config.revision,
        };
        send(&mut self.peer, &welcome, &[]);
        if protocol != PROTOCOL {
            warn!("tautd speaks version {protocol} of this border, the fabric {PROTOCOL}; disconnected");
            self.peer = None;
            return;
        }
        if let Some(peer) = &mut self.peer {
            peer.greeted = true;
        }
        info!("tautd has connected");
        for entry in self.entries.values_mut() {
            if let Some(session) = &mut entry.session {
                pass_on(&mut self.peer, session);
            }
            entry.forget_told();
        }
    }

    fn attach(&mut self, port: PortId, via: Attachment, fds: Vec<OwnedFd>) {
        let Some(entry) = self.entries.get_mut(&port) else {
            let reason = Some(format!("{port} is not configured"));
            let state = FromFabric::PortState { port, link: Link::Down, reason, attached: false };
            return send(&mut self.peer, &state, &[]);
        };
        if entry.session.is_some() {
            let reason = "replaced by another attachment".to_owned();
            send(&mut self.peer, &FromFabric::SessionEnded { port, reason }, &[]);
        }
        match entry.attach(via, fds, &self.events) {
            Ok(()) => {
                if let Some(session) = &mut entry.session {
                    pass_on(&mut self.peer, session);
                }
            }
            Err(error) => entry.refuse(&error),
        }
        entry.forget_told();
        self.workers.look_at(port);
    }

    fn accept_front_end(&mut self, port: PortId) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        if let Err(error) = entry.accept(&self.events) {
            entry.lose(error.to_string(), &self.events);
        }
        if let Some(session) = &mut entry.session {
            pass_on(&mut self.peer, session);
        }
        self.workers.look_at(port);
    }

    fn serve_front_end(&mut self, port: PortId) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        let Some(session) = &mut entry.session else { return };
        let served = serve_requests(&mut self.peer, session);
        pass_on_changed(&mut self.peer, session);
        if let Err(error) = served {
            let reason = chain(&error);
            entry.lose(reason.clone(), &self.events);
            send(&mut self.peer, &FromFabric::SessionEnded { port, reason }, &[]);
        }
        self.workers.look_at(port);
    }

    /// Queues stopped working.
    fn incidents(&mut self) {
        for incident in self.workers.take_incidents() {
            if let Some(entry) = self.entries.get_mut(&incident.port) {
                entry.fail(incident.queue, incident.failure, &self.events);
            }
        }
    }

    /// Tells `tautd` what has changed at the ports.
    fn tell_news(&mut self) {
        if !self.greeted() {
            self.vmci.nobody_answers();
            return;
        }
        if self.standby {
            return;
        }
        for (&port, entry) in &mut self.entries {
            if let Some(entry::State { link, reason, attached }) = entry.news() {
                send(&mut self.peer, &FromFabric::PortState { port, link, reason, attached }, &[]);
            }
        }
    }

    /// The planned half of an upgrade: everything published, every session told. Sockets close with the process; the
    /// front ends' other duplicates keep them open.
    fn quit(mut self) {
        self.workers.stop();
        let streams = self.vmci.sockets.stop();
        for entry in self.entries.values_mut() {
            entry.device.stop();
            if let Some(session) = &mut entry.session {
                pass_on_changed(&mut self.peer, session);
            }
        }
        self.hand_over_streams(&streams);
        send(&mut self.peer, &FromFabric::Stopped, &[]);
        info!("ended on tautd's request");
    }
}

fn serve_requests(peer: &mut Option<Peer>, session: &mut Session) -> Result<(), SessionError> {
    for _ in 0..REQUESTS {
        let Some((header, request)) = session.receive()? else { return Ok(()) };
        let reply = session.apply(&header, request)?;
        if reply.is_awaited() {
            pass_on_changed(peer, session);
            session.reply(&reply)?;
        }
    }
    Ok(())
}

/// Sends a message; a `tautd` that cannot be sent to is disconnected.
fn send(peer: &mut Option<Peer>, message: &FromFabric, fds: &[std::os::fd::BorrowedFd<'_>]) {
    let Some(connected) = peer else { return };
    if let Err(error) = connected.send(message, fds) {
        warn!("tautd does not take messages: {error}; disconnected");
        *peer = None;
    }
}

fn pass_on_changed(peer: &mut Option<Peer>, session: &mut Session) {
    if session.has_changed() {
        pass_on(peer, session);
    }
}

fn pass_on(peer: &mut Option<Peer>, session: &mut Session) {
    session.mark_told();
    if peer.as_ref().is_some_and(|peer| peer.greeted) {
        send(peer, &FromFabric::Session(session.record().clone()), &session.descriptors());
    }
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
