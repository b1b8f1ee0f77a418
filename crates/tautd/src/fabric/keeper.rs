//! The thread that keeps a fabric running and listens to it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use taut_api::event::Level;
use taut_api::fabric::{FromFabric, PROTOCOL, PortId, SessionRecord, ToFabric, channel};
use taut_api::vm::Link;

use super::Shared;
use crate::process::Process;
use crate::reconcile::Message;

/// How long a fabric may take to answer the first message.
const PATIENCE: Duration = Duration::from_secs(5);
/// A fabric that lives shorter than this counts as failing to start.
const SHORT_LIFE: Duration = Duration::from_millis(250);
/// Restarts without a pause; after that the pauses grow.
const FREE_RESTARTS: u32 = 5;
/// Longest pause before the next start.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// How long a fabric that closed its connection may take to die.
const HANG_UP: Duration = Duration::from_millis(100);

/// What was said on one connection.
#[derive(Debug, Default)]
struct Conversation {
    /// Revision of the configuration that is in force.
    configured: Option<u64>,
    /// Ports whose state was told.
    told: BTreeSet<PortId>,
    /// What the last fabric had has been given to this one.
    handed_over: bool,
}

impl Shared {
    /// Runs until the daemon ends the fabric.
    pub(super) fn keep(&self) {
        let mut found = self.paths.adopt();
        let mut short_lives = 0;
        while !self.ending.load(Ordering::SeqCst) {
            let born = Instant::now();
            let adopted = found.is_some();
            match found.take().map_or_else(|| self.start_one(), Ok) {
                Ok((process, stream)) => self.serve(process, stream, adopted),
                Err(error) => {
                    let message = format!("the fabric cannot be started: {error}");
                    self.store.event(Level::Error, "fabric", "fabric.not-started", &message);
                }
            }
            short_lives = if born.elapsed() < SHORT_LIFE { short_lives + 1 } else { 0 };
            self.pause(short_lives);
        }
        self.paths.clean();
    }

    fn start_one(&self) -> io::Result<(Process, UnixStream)> {
        self.board.lock().fabric_starts += 1;
        self.paths.spawn()
    }

    /// From the first message to the death of one fabric.
    fn serve(&self, process: Process, mut stream: UnixStream, adopted: bool) {
        self.board.lock().fabric_pid = Some(process.pid());
        let (kind, verb) = if adopted { ("fabric.adopted", "found") } else { ("fabric.started", "started") };
        let message = format!("{verb} the fabric, process {}", process.pid());
        self.store.event(Level::Info, "fabric", kind, &message);
        let end = loop {
            let end = self.converse(&stream);
            *self.wire() = None;
            self.board.lock().observed.fabric_ready = false;
            if process.has_ended(HANG_UP) || end.is_err() || self.ending.load(Ordering::SeqCst) {
                break end;
            }
            // It lives and hung up: it does that to a daemon that was too slow to read.
            match self.paths.connect() {
                Ok(again) => stream = again,
                Err(error) => break Err(error),
            }
        };
        self.bury(process, end.err());
    }

    /// One connection, from the first message to its end.
    fn converse(&self, stream: &UnixStream) -> io::Result<()> {
        // What this fabric tells of its ports, now and later, is about the ports as they are wanted now.
        self.wanted().new_ports.clear();
        let revision = Self::greet(stream)?;
        // Both directions at once: a fabric that has much to say must not wait for us to finish.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Err(error) = self.tell_configuration(stream, revision) {
                    tracing::debug!(%error, "the fabric ended while it was told its configuration");
                }
            });
            let mut conversation = Conversation::default();
            while let Some((message, fds)) = channel::receive(stream)? {
                self.hear(&mut conversation, message, fds);
            }
            Ok(())
        })
    }

    /// Says who we are; returns the revision of the configuration that the fabric runs.
    fn greet(stream: &UnixStream) -> io::Result<u64> {
        channel::send(stream, &ToFabric::Hello { protocol: PROTOCOL }, &[])?;
        let mut readable = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
        if poll(&mut readable, Timespec::try_from(PATIENCE).ok().as_ref())? == 0 {
            return Err(io::Error::other(format!("it did not answer within {PATIENCE:?}")));
        }
        match channel::receive(stream)? {
            Some((FromFabric::Welcome { protocol: PROTOCOL, revision, .. }, _)) => Ok(revision),
            Some((FromFabric::Welcome { protocol, .. }, _)) => {
                Err(io::Error::other(format!("it speaks version {protocol}, this daemon {PROTOCOL}")))
            }
            Some((other, _)) => Err(io::Error::other(format!("it answered {other:?} instead of a welcome"))),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Sends the configuration, then opens the wire for others.
    fn tell_configuration(&self, stream: &UnixStream, revision: u64) -> io::Result<()> {
        let mut wire = self.wire();
        let config = {
            let mut wanted = self.wanted();
            wanted.config.revision = wanted.config.revision.max(revision) + 1;
            wanted.config.clone()
        };
        channel::send(stream, &ToFabric::Configure(config), &[])?;
        *wire = Some(stream.try_clone()?);
        if self.ending.load(Ordering::SeqCst) {
            // Whoever ends the fabric may have found the wire still closed.
            super::send(wire.as_ref(), &ToFabric::Quit, &[]);
        }
        Ok(())
    }

    fn hear(&self, conversation: &mut Conversation, message: FromFabric, fds: Vec<OwnedFd>) {
        match message {
            FromFabric::Welcome { .. } => {}
            FromFabric::Configured { revision, refused } => {
                conversation.configured = Some(revision);
                self.board.lock().refused_ports = refused.into_iter().collect();
            }
            FromFabric::Session(record) => self.session(record, fds),
            FromFabric::SessionEnded { port, reason } => {
                tracing::debug!(%port, reason, "session ended");
                self.wanted().held.end_session(port);
            }
            FromFabric::PortState { port, link, reason, attached } => {
                conversation.told.insert(port);
                self.port_state(conversation, port, link, reason, attached);
            }
        }
        self.look_whether_ready(conversation);
    }

    /// Once the newest configuration is in force and every port's state is known, ports may be attached: first those that
    /// the last fabric served.
    fn look_whether_ready(&self, conversation: &mut Conversation) {
        let wanted = self.wanted();
        if conversation.configured != Some(wanted.config.revision) {
            return;
        }
        let refused = self.board.lock().refused_ports.clone();
        let unknown = |id: &PortId| !conversation.told.contains(id) && !refused.contains_key(id);
        if wanted.config.ports.iter().map(|port| port.id).any(|id| unknown(&id)) {
            return;
        }
        drop(wanted);
        if !conversation.handed_over {
            conversation.handed_over = true;
            self.hand_over();
        }
        let was_ready = std::mem::replace(&mut self.board.lock().observed.fabric_ready, true);
        if !was_ready {
            self.inbox.send(Message::Wake);
        }
    }

    /// Gives a new fabric everything that the last one had.
    fn hand_over(&self) {
        let wire = self.wire();
        let mut messages = self.wanted().held.messages();
        let mut seen = self.board.lock();
        messages.retain(|(port, ..)| !seen.observed.attached(*port));
        for (port, ..) in &messages {
            seen.observed.ports.entry(*port).or_default().attached = true;
        }
        drop(seen);
        for (_, message, fds) in messages {
            super::send(wire.as_ref(), &message, &fds);
        }
    }

    fn session(&self, record: SessionRecord, fds: Vec<OwnedFd>) {
        let expected = record.descriptors().len();
        if fds.len() != expected {
            tracing::warn!(port = %record.port, got = fds.len(), expected, "a session came without its descriptors");
            return;
        }
        let mut wanted = self.wanted();
        if wanted.has(record.port) {
            wanted.held.keep_session(record, fds);
        }
    }

    fn port_state(
        &self,
        conversation: &Conversation,
        port: PortId,
        link: Link,
        reason: Option<String>,
        attached: bool,
    ) {
        let mut wanted = self.wanted();
        let in_force = conversation.configured == Some(wanted.config.revision);
        let Some(config) = wanted.config.ports.iter().find(|wanted| wanted.id == port) else { return };
        if wanted.new_ports.contains(&port) && !in_force {
            return;
        }
        let owner = config.owner.clone();
        if !attached && conversation.handed_over {
            wanted.held.release(port);
        }
        drop(wanted);
        let mut seen = self.board.lock();
        let state = seen.observed.ports.entry(port).or_default();
        let changed = state.link != link;
        state.link = link;
        state.reason.clone_from(&reason);
        state.attached = attached;
        drop(seen);
        if changed {
            let (level, kind, what) = match link {
                Link::Up => (Level::Info, "port.up", "up"),
                Link::Down => (Level::Info, "port.down", "down"),
                Link::Broken => (Level::Warning, "port.broken", "broken"),
            };
            let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            self.store.event(level, &owner, kind, &format!("the link is {what}{why}"));
        }
        self.inbox.send(Message::Wake);
    }

    /// Makes sure that one fabric is gone before the next touches the same rings.
    fn bury(&self, mut process: Process, error: Option<io::Error>) {
        let ending = self.ending.load(Ordering::SeqCst);
        if !process.has_ended(if ending { PATIENCE } else { Duration::ZERO }) {
            process.signal(Signal::KILL);
            process.has_ended(PATIENCE);
        }
        let status = process.status();
        let mut seen = self.board.lock();
        seen.fabric_pid = None;
        seen.observed.fabric_ready = false;
        drop(seen);
        if ending {
            return;
        }
        let mut message = format!("the fabric, process {}, ended", process.pid());
        if let Some(status) = status {
            message = format!("{message} ({status})");
        }
        if let Some(error) = error {
            message = format!("{message}: {error}");
        }
        message =
            format!("{message}; another one goes on with its ports. Its log: {}", self.paths.log().display());
        self.store.event(Level::Error, "fabric", "fabric.died", &message);
    }

    fn pause(&self, short_lives: u32) {
        let doublings = short_lives.saturating_sub(FREE_RESTARTS);
        if doublings == 0 {
            return;
        }
        let pause = Duration::from_millis(50).saturating_mul(1 << doublings.min(10)).min(LONGEST_PAUSE);
        let end = Instant::now() + pause;
        while Instant::now() < end && !self.ending.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
