//! The thread that keeps a fabric running and listens to it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use taut_api::event::Level;
use taut_api::fabric::{FromFabric, PROTOCOL, ToFabric, channel};

use super::Shared;
use super::conversation::Conversation;
use super::successor::Watch;
use crate::process::Process;

/// How long a fabric may take to answer the first message.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A fabric that lives shorter than this counts as failing to start.
const SHORT_LIFE: Duration = Duration::from_millis(250);
/// Restarts without a pause; after that the pauses grow.
const FREE_RESTARTS: u32 = 5;
/// Longest pause before the next start.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// How long a fabric that closed its connection may take to die.
const HANG_UP: Duration = Duration::from_millis(100);

/// A fabric's process, and the connection to it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) stream: UnixStream,
    pub(super) origin: Origin,
}

/// How a fabric came to be ours.
#[derive(Debug)]
pub(super) enum Origin {
    /// An earlier daemon left it running.
    Found,
    /// This daemon started it, and it has all that it needs.
    TookOver(Conversation),
}

/// How a conversation ended.
#[derive(Debug)]
pub(super) enum End {
    /// The fabric closed it.
    HungUp,
    /// Another fabric has taken over.
    Succeeded(Running),
}

impl Shared {
    /// Runs until the daemon ends the fabric.
    pub(super) fn supervise(&self) {
        let found = |(process, stream)| Running { process, stream, origin: Origin::Found };
        let mut next = self.paths.adopt().map(found);
        let mut short_lives = 0;
        while !self.ending.load(Ordering::SeqCst) {
            let born = Instant::now();
            match next.take().map_or_else(|| self.start_one(), Ok) {
                Ok(running) => next = self.serve(running),
                Err(error) => {
                    let message = format!("the fabric cannot be started: {error}");
                    self.store.event(Level::Error, "fabric", "fabric.not-started", &message);
                }
            }
            if next.is_none() {
                short_lives = if born.elapsed() < SHORT_LIFE { short_lives + 1 } else { 0 };
                self.pause(short_lives);
            }
        }
        if let Some(running) = next {
            self.bury(running.process, None);
        }
        self.paths.clean();
    }

    /// Starts a fabric and gives it everything that the last one had.
    fn start_one(&self) -> io::Result<Running> {
        self.board.lock().fabric_starts += 1;
        let (process, stream) = self.paths.spawn()?;
        let message = format!("started the fabric, process {}", process.pid());
        self.store.event(Level::Info, "fabric", "fabric.started", &message);
        // Nothing else is said to it before it has begun.
        let mut wire = self.wire();
        self.wanted().new_ports.clear();
        self.generation.fetch_add(1, Ordering::SeqCst);
        let begun = self.give(&stream, &mut Watch::start()).and_then(|given| {
            for (port, why) in &given.refused {
                tracing::warn!(%port, why, "the next fabric cannot go on with what this port had");
            }
            let conversation = self.take_over(&stream, &given, &[])?;
            Ok((conversation, stream.try_clone()?))
        });
        match begun {
            Ok((conversation, open)) => {
                *wire = Some(open);
                if self.ending.load(Ordering::SeqCst) {
                    // Whoever ends the fabric may have found the wire still closed.
                    super::send(wire.as_ref(), &ToFabric::Quit, &[]);
                }
                Ok(Running { process, stream, origin: Origin::TookOver(conversation) })
            }
            Err(error) => {
                process.kill(PATIENCE);
                Err(error)
            }
        }
    }

    /// Until the death of one fabric, or until another has taken over from it.
    fn serve(&self, running: Running) -> Option<Running> {
        let Running { process, mut stream, origin } = running;
        self.board.lock().observed.fabric.pid = Some(process.pid());
        let mut known = match origin {
            Origin::TookOver(conversation) => Some(conversation),
            Origin::Found => {
                let message = format!("found the fabric, process {}", process.pid());
                self.store.event(Level::Info, "fabric", "fabric.adopted", &message);
                None
            }
        };
        let end = loop {
            let end = match known.take() {
                Some(conversation) => self.listen(&process, &stream, conversation),
                None => self.converse(&process, &stream),
            };
            if let Ok(End::Succeeded(next)) = end {
                retire(process);
                return Some(next);
            }
            *self.wire() = None;
            self.board.lock().observed.fabric.ready = false;
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
        None
    }

    /// One connection, from the first message to its end.
    fn converse(&self, process: &Process, stream: &UnixStream) -> io::Result<End> {
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
            self.listen(process, stream, Conversation::default())
        })
    }

    /// Hears what a fabric says, and has another take over from it when somebody asks for that.
    fn listen(
        &self,
        process: &Process,
        stream: &UnixStream,
        mut conversation: Conversation,
    ) -> io::Result<End> {
        loop {
            if self.upgrades.is_asked_for() && self.is_ready(&conversation) {
                let upgraded = self.upgrade(process, stream, &mut conversation)?;
                if let Some(next) = upgraded {
                    return Ok(End::Succeeded(next));
                }
            }
            let mut heard =
                [stream.as_fd(), self.upgrades.bell()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut heard, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [from_fabric, bell] = heard.map(|polled| !polled.revents().is_empty());
            if bell {
                self.upgrades.hear_bell();
            }
            if from_fabric {
                match channel::receive(stream)? {
                    Some((message, fds)) => self.hear(&mut conversation, message, fds),
                    None => return Ok(End::HungUp),
                }
            }
        }
    }

    /// Says who we are; returns the revision of the configuration that the fabric runs.
    pub(super) fn greet(stream: &UnixStream) -> io::Result<u64> {
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

    /// Makes sure that one fabric is gone before the next touches the same rings.
    fn bury(&self, mut process: Process, error: Option<io::Error>) {
        let ending = self.ending.load(Ordering::SeqCst);
        if !process.has_ended(if ending { PATIENCE } else { Duration::ZERO }) {
            process.signal(Signal::KILL);
            process.has_ended(PATIENCE);
        }
        let status = process.status();
        let mut seen = self.board.lock();
        seen.observed.fabric.pid = None;
        seen.observed.fabric.ready = false;
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

/// Waits for the end of a fabric that has handed everything over.
fn retire(mut process: Process) {
    if !process.has_ended(PATIENCE) {
        process.signal(Signal::KILL);
        process.has_ended(PATIENCE);
    }
    process.status();
}
