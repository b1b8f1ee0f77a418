//! The thread that keeps a fabric running and handles its messages.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_api::event::Level;
use taut_api::fabric::{Abilities, Ability, FromFabric, PROTOCOL, ToFabric, channel, closing};

use super::abilities::fit;
use super::conversation::Conversation;
use super::successor::Watch;
use super::{Shared, Wire};
use crate::process::Process;

/// Time limit for a fabric's first answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// A fabric that served its ports for a shorter time counts as a failed start.
const SHORT_LIFE: Duration = Duration::from_millis(100);
/// Number of restarts without a pause; later pauses grow.
const FREE_RESTARTS: u32 = 5;
/// Longest pause before the next start.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Interval between two questions to the fabric whether its threads make progress.
const PING: Duration = Duration::from_secs(1);
/// Intervals without an answer after which the fabric is replaced. A fabric that only waits for a
/// CPU answers earlier. Intervals are counted, not time: this daemon may have been stopped, too.
const MOST_UNANSWERED: u32 = 5;

/// Time that a fabric may take to exit after it closed its connection.
const HANG_UP: Duration = Duration::from_millis(100);

/// A fabric's process and the connection to it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) stream: UnixStream,
    pub(super) origin: Origin,
}

/// Origin of a fabric.
#[derive(Debug)]
pub(super) enum Origin {
    /// An earlier daemon left it running.
    Found,
    /// This daemon started it, and it has received everything.
    TookOver(Conversation),
}

/// End of a connection.
#[derive(Debug)]
pub(super) enum End {
    /// The fabric closed it.
    HungUp,
    /// Another fabric took over.
    Succeeded(Running),
}

/// A fabric's answer to the first message.
#[derive(Debug)]
pub(super) struct Greeting {
    /// Version of taut; empty if it is not known.
    pub(super) version: String,
    /// Revision of its configuration.
    revision: u64,
    /// Abilities that it has told of.
    pub(super) abilities: Abilities,
}

impl Shared {
    /// Runs until the daemon ends the fabric.
    pub(super) fn supervise(&self) {
        let found = |(process, stream)| Running { process, stream, origin: Origin::Found };
        let mut next = self.paths.adopt().map(found);
        let mut short_lives = 0;
        while !self.ending.load(Ordering::SeqCst) {
            let mut served = Duration::ZERO;
            match next.take().map_or_else(|| self.start_one(), Ok) {
                Ok(running) => {
                    let begun = Instant::now();
                    next = self.serve(running);
                    served = begun.elapsed();
                }
                Err(error) => {
                    let message = format!("cannot start the fabric: {error}");
                    self.store.event(Level::Error, "fabric", "fabric.not-started", &message);
                }
            }
            if next.is_none() {
                short_lives = if served < SHORT_LIFE { short_lives + 1 } else { 0 };
                self.pause(short_lives);
            }
        }
        if let Some(running) = next {
            self.bury(&running.process, None);
        }
        self.paths.clean();
    }

    /// Starts a fabric and gives it everything that the last one had.
    fn start_one(&self) -> io::Result<Running> {
        self.board.lock().fabric_starts += 1;
        let (process, stream) = self.paths.spawn()?;
        let message = format!("started the fabric, process {}", process.pid());
        self.store.event(Level::Info, "fabric", "fabric.started", &message);
        // Other messages must wait until the fabric has begun to serve.
        let mut wire = self.wire();
        self.wanted().new_ports.clear();
        self.generation.fetch_add(1, Ordering::SeqCst);
        let begun = self.give(&stream, &mut Watch::start()).and_then(|given| {
            for (port, why) in &given.refused {
                tracing::warn!(%port, why, "the next fabric cannot take over this port");
            }
            let conversation = self.take_over(&stream, &given, &[])?;
            Ok((conversation, stream.try_clone()?))
        });
        match begun {
            Ok((conversation, open)) => {
                *wire = Some(Wire { stream: open, abilities: conversation.abilities });
                if self.ending.load(Ordering::SeqCst) {
                    // `Fabric::end` may have found the wire still closed, so repeat its message.
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

    /// Serves one fabric until it dies or another takes over; returns the successor.
    fn serve(&self, running: Running) -> Option<Running> {
        let Running { process, mut stream, origin } = running;
        {
            let mut seen = self.board.lock();
            seen.observed.fabric.pid = Some(process.pid());
            seen.fabrics_served = seen.fabrics_served.saturating_add(1);
        }
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
                // It has handed everything over, and only has to end.
                process.halt(HANG_UP, PATIENCE);
                return Some(next);
            }
            *self.wire() = None;
            self.board.lock().lose_fabric();
            if process.has_ended(HANG_UP) || end.is_err() || self.ending.load(Ordering::SeqCst) {
                break end;
            }
            // The fabric closes the connection of a daemon that reads too slowly, and continues to
            // run.
            match self.paths.connect() {
                Ok(again) => stream = again,
                Err(error) => break Err(error),
            }
        };
        self.bury(&process, end.err());
        None
    }

    /// Handles one connection from the first message to its end.
    fn converse(&self, process: &Process, stream: &UnixStream) -> io::Result<End> {
        // Reports of this fabric concern the ports as they are wanted now.
        self.wanted().new_ports.clear();
        let Greeting { version, revision, abilities } = Self::greet(stream)?;
        // Send and receive at the same time: the fabric must not block while it has much to send.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if let Err(error) = self.tell_configuration(stream, revision, abilities) {
                    tracing::debug!(%error, "the fabric ended while it was told its configuration");
                }
            });
            self.listen(process, stream, Conversation { version, abilities, ..Conversation::default() })
        })
    }

    /// Handles messages of a fabric, and upgrades it when asked to.
    fn listen(
        &self,
        process: &Process,
        stream: &UnixStream,
        mut conversation: Conversation,
    ) -> io::Result<End> {
        self.board.lock().note_fabric(&conversation.version, conversation.abilities.has(Ability::NetworkIo));
        let mut next_ping = Instant::now() + PING;
        loop {
            if self.upgrades.is_asked_for() && self.is_ready(&conversation) {
                let upgraded = self.upgrade(process, stream, &mut conversation)?;
                if let Some(next) = upgraded {
                    return Ok(End::Succeeded(next));
                }
            }
            let mut heard = [stream.as_fd(), self.upgrades.request_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let left = next_ping.saturating_duration_since(Instant::now());
            match poll(&mut heard, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [from_fabric, requested] = heard.map(|polled| !polled.revents().is_empty());
            if requested {
                self.upgrades.clear_request();
            }
            if from_fabric {
                match channel::receive_within(stream, PATIENCE)? {
                    Some((message, fds)) => self.hear(&mut conversation, message, fds),
                    None => return Ok(End::HungUp),
                }
            }
            if Instant::now() >= next_ping {
                next_ping = Instant::now() + PING;
                self.ping(&mut conversation)?;
            }
        }
    }

    /// Asks the fabric whether its threads make progress. Returns an error if it has not answered
    /// for long, or has answered that a thread does not.
    fn ping(&self, conversation: &mut Conversation) -> io::Result<()> {
        for port in closing::overdue() {
            self.close_blocked(port);
        }
        // A look at the queues costs more with each port.
        if !closing::is_idle() {
            self.shut_out_clogged();
        }
        if !conversation.abilities.has(Ability::AnswersPings) {
            return Ok(());
        }
        let longest = PING * MOST_UNANSWERED;
        if conversation.unanswered >= MOST_UNANSWERED {
            return Err(io::Error::other(format!("it has not answered for {longest:?}")));
        }
        if conversation.silence >= longest {
            let silence = conversation.silence;
            return Err(io::Error::other(format!("one of its threads has made no progress for {silence:?}")));
        }
        // A thread that is just sending something may be waiting for the fabric, and so would this.
        // Then the ping is sent after a later interval.
        if !conversation.pinged
            && let Ok(wire) = self.wire.try_lock()
            && wire.is_some()
        {
            super::send(wire.as_ref(), &ToFabric::Ping, &[]);
            conversation.pinged = true;
        }
        conversation.unanswered += 1;
        Ok(())
    }

    /// Sends the first message.
    pub(super) fn greet(stream: &UnixStream) -> io::Result<Greeting> {
        channel::send_within(stream, &ToFabric::Hello { protocol: PROTOCOL }, &[], PATIENCE)?;
        let answer = channel::receive_within(stream, PATIENCE).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                io::Error::other(format!("the fabric did not answer within {PATIENCE:?}"))
            }
            _ => error,
        });
        match answer? {
            Some((FromFabric::Welcome { protocol: PROTOCOL, version, revision, abilities, .. }, _)) => {
                Ok(Greeting { version, revision, abilities })
            }
            Some((FromFabric::Welcome { protocol, .. }, _)) => Err(io::Error::other(format!(
                "the fabric's protocol version is {protocol}, the daemon's {PROTOCOL}"
            ))),
            Some((other, _)) => {
                Err(io::Error::other(format!("the fabric answered {other:?} instead of Welcome")))
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Sends the configuration, then opens the wire for other threads.
    fn tell_configuration(&self, stream: &UnixStream, revision: u64, abilities: Abilities) -> io::Result<()> {
        let mut wire = self.wire();
        let config = {
            let mut wanted = self.wanted();
            wanted.config.revision = wanted.config.revision.max(revision) + 1;
            wanted.config.clone()
        };
        if let Some(configure) = fit(abilities, &ToFabric::Configure(config)) {
            channel::send_within(stream, &*configure, &[], PATIENCE)?;
        }
        *wire = Some(Wire { stream: stream.try_clone()?, abilities });
        if self.ending.load(Ordering::SeqCst) {
            // `Fabric::end` may have found the wire still closed, so repeat its message.
            super::send(wire.as_ref(), &ToFabric::Quit, &[]);
        }
        Ok(())
    }

    /// Kills the fabric before the next one touches the same rings, and reports its death. No
    /// killed thread touches them again, also if one is still in the kernel.
    fn bury(&self, process: &Process, error: Option<io::Error>) {
        let ending = self.ending.load(Ordering::SeqCst);
        let status = process.halt(if ending { PATIENCE } else { Duration::ZERO }, PATIENCE).status();
        let mut seen = self.board.lock();
        seen.observed.fabric.pid = None;
        seen.lose_fabric();
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
        message = format!("{message}; another one takes over its ports. Log: {}", self.paths.log().display());
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
