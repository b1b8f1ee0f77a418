//! A planned upgrade: the next fabric is started, configured and given everything while the last one still serves; only then
//! does that one stop, and the next starts the rings where it stopped.
//!
//! The keeper does it all, with the wire held, so nothing is said to either fabric in between. Whatever goes wrong before the
//! old fabric has stopped leaves it serving; whatever goes wrong afterwards is a fabric that died, and ends as that does.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::fabric::{FabricConfig, FromFabric, PortId, SessionRecord, ToFabric, channel};
use taut_api::route::UpgradedFabric;
use tokio::sync::oneshot;

use super::Shared;
use super::conversation::Conversation;
use super::held::Attach;
use super::keeper::{Origin, PATIENCE, Running};
use crate::process::Process;

/// How long a fabric may take to stop its rings: longer than any burst. After that it is killed.
const STOP: Duration = Duration::from_secs(1);

/// Where the answer goes.
pub(crate) type Done = oneshot::Sender<Result<UpgradedFabric, ApiError>>;

/// Those who have asked for an upgrade.
#[derive(Debug)]
pub(super) struct Upgrades {
    asked: Mutex<Vec<Done>>,
    bell: OwnedFd,
}

impl Upgrades {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            asked: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// One upgrade answers all who ask for it before it begins.
    pub(super) fn ask(&self, done: Done) {
        self.list().push(done);
        // Fails only when it has been rung 2^64 times unheard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(super) fn is_asked_for(&self) -> bool {
        !self.list().is_empty()
    }

    /// Readable when somebody has asked since [`Self::hear_bell`].
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn hear_bell(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    fn list(&self) -> MutexGuard<'_, Vec<Done>> {
        self.asked.lock().expect("no holder panics")
    }

    fn answer(&self, answer: &Result<UpgradedFabric, ApiError>) {
        for done in self.list().drain(..) {
            // Whoever asked may have gone.
            let _ = done.send(answer.clone());
        }
    }
}

/// What took how long.
#[derive(Debug)]
struct Watch(Instant);

impl Watch {
    /// Microseconds since the last call.
    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let lap = now - std::mem::replace(&mut self.0, now);
        lap.as_micros().try_into().unwrap_or(u64::MAX)
    }
}

impl Shared {
    /// Has a new fabric take over from `old`, and answers those who asked. `None` when it cannot and `old` goes on; an error
    /// when both are gone.
    pub(super) fn upgrade(
        &self,
        old: &Process,
        stream: &UnixStream,
        conversation: &mut Conversation,
    ) -> io::Result<Option<Running>> {
        // Nothing else is said to a fabric until one of the two is alone.
        let mut wire = self.wire();
        let mut watch = Watch(Instant::now());
        let (mut report, next) = match self.prepare(old, &mut watch) {
            Ok(prepared) => prepared,
            Err(error) => {
                let message =
                    format!("the fabric, process {}, goes on: no other can take over: {error}", old.pid());
                self.store.event(Level::Error, "fabric", "fabric.not-upgraded", &message);
                self.upgrades.answer(&Err(cannot(&error)));
                return Ok(None);
            }
        };
        let taken = self.stop(old, stream, conversation).and_then(|changed| {
            report.stop_us = watch.lap();
            self.begin(&next, &changed)
        });
        if let Err(error) = taken {
            // Whether it has begun or not: the one that is started next must find the rings let go of.
            end(next.process);
            self.upgrades.answer(&Err(cannot(&error)));
            return Err(error);
        }
        report.take_over_us = watch.lap();
        report.gap_us = report.stop_us + report.take_over_us;
        *wire = Some(next.stream.try_clone()?);
        drop(wire);
        let message = format!(
            "the fabric, process {}, has taken over from process {}: {} ports stood still for {:.1} ms",
            report.new_pid,
            report.old_pid,
            report.ports,
            report.gap_us as f64 / 1000.0
        );
        self.store.event(Level::Info, "fabric", "fabric.upgraded", &message);
        self.upgrades.answer(&Ok(report));
        Ok(Some(next))
    }

    /// Starts a fabric and gives it everything. One that does not take everything is ended again.
    fn prepare(&self, old: &Process, watch: &mut Watch) -> io::Result<(UpgradedFabric, Running)> {
        self.board.lock().fabric_starts += 1;
        let (process, stream) = self.paths.spawn_beside()?;
        let mut report =
            UpgradedFabric { old_pid: old.pid(), new_pid: process.pid(), ..UpgradedFabric::default() };
        match self.give(&stream, &mut report, watch) {
            Ok(conversation) => {
                Ok((report, Running { process, stream, origin: Origin::TookOver(conversation) }))
            }
            Err(error) => {
                end(process);
                Err(error)
            }
        }
    }

    fn give(
        &self,
        stream: &UnixStream,
        report: &mut UpgradedFabric,
        watch: &mut Watch,
    ) -> io::Result<Conversation> {
        Self::greet(stream)?;
        report.start_us = watch.lap();
        stream.set_nonblocking(true)?;
        let (config, messages) = {
            let wanted = self.wanted();
            report.ports = wanted.held.ports().len() as u32;
            (wanted.config.clone(), wanted.held.messages())
        };
        let conversation = Conversation {
            configured: Some(config.revision),
            told: config.ports.iter().map(|port| port.id).collect(),
            handed_over: true,
        };
        let answers = messages.len();
        // Both directions at once, as always.
        std::thread::scope(|scope| {
            let told = scope.spawn(|| tell(stream, config, &messages));
            configured(stream)?;
            report.configure_us = watch.lap();
            for _ in 0..answers {
                self.prepared(stream)?;
            }
            report.prepare_us = watch.lap();
            told.join().unwrap_or_else(|_| Err(io::Error::other("telling it everything panicked")))
        })?;
        Ok(conversation)
    }

    /// Waits for the answer to one attachment.
    fn prepared(&self, stream: &UnixStream) -> io::Result<()> {
        match next_message(stream)? {
            FromFabric::Prepared { refused: None, .. } => Ok(()),
            FromFabric::Prepared { port, refused: Some(why) } => {
                let owner = self.wanted().owners().remove(&port).unwrap_or_else(|| port.to_string());
                Err(io::Error::other(format!("the new one cannot serve {owner}: {why}")))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Has the old fabric stop, dead or alive. Returns the ports whose sessions have changed since they were prepared.
    fn stop(
        &self,
        old: &Process,
        stream: &UnixStream,
        conversation: &mut Conversation,
    ) -> io::Result<BTreeSet<PortId>> {
        let mut changed = BTreeSet::new();
        stream.set_nonblocking(true)?;
        // One that cannot be told has died, and what it still said counts.
        let _ = channel::send_within(stream, &ToFabric::Quit, &[], STOP);
        let stopped = loop {
            match channel::receive_within(stream, STOP) {
                Ok(Some((FromFabric::Stopped, _))) => break true,
                Ok(Some((message, fds))) => {
                    match &message {
                        FromFabric::Session(SessionRecord { port, .. })
                        | FromFabric::SessionEnded { port, .. } => _ = changed.insert(*port),
                        _ => {}
                    }
                    self.hear(conversation, message, fds);
                }
                Ok(None) | Err(_) => break false,
            }
        };
        if !stopped {
            // It died or hangs: the rings must be its no longer.
            old.signal(Signal::KILL);
            if !old.has_ended(PATIENCE) {
                return Err(io::Error::other("the old fabric cannot be ended"));
            }
        }
        Ok(changed)
    }

    /// Lets the new fabric begin.
    fn begin(&self, next: &Running, changed: &BTreeSet<PortId>) -> io::Result<()> {
        let Running { process, stream, .. } = next;
        let (ports, messages) = {
            let wanted = self.wanted();
            let messages: Vec<_> = changed.iter().flat_map(|&port| wanted.held.messages_of(port)).collect();
            (wanted.held.ports(), messages)
        };
        attach(stream, &messages)?;
        // Before it touches a ring: a daemon that comes after this one must find it, or know that it has ended.
        self.paths.succeed(process)?;
        channel::send_within(stream, &ToFabric::TakeOver { ports }, &[], PATIENCE)?;
        loop {
            match next_message(stream)? {
                FromFabric::TookOver => return Ok(()),
                // A session that changed meanwhile and is refused is told again as a port's state.
                FromFabric::Prepared { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
    }
}

fn end(mut process: Process) {
    process.signal(Signal::KILL);
    process.has_ended(PATIENCE);
    process.status();
}

fn tell(stream: &UnixStream, config: FabricConfig, messages: &[Attach]) -> io::Result<()> {
    channel::send_within(stream, &ToFabric::StandBy, &[], PATIENCE)?;
    channel::send_within(stream, &ToFabric::Configure(config), &[], PATIENCE)?;
    attach(stream, messages)
}

fn attach(stream: &UnixStream, messages: &[Attach]) -> io::Result<()> {
    for (_, message, fds) in messages {
        let fds: Vec<_> = fds.iter().map(|fd: &Arc<OwnedFd>| fd.as_fd()).collect();
        channel::send_within(stream, message, &fds, PATIENCE)?;
    }
    Ok(())
}

fn configured(stream: &UnixStream) -> io::Result<()> {
    match next_message(stream)? {
        FromFabric::Configured { .. } => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn next_message(stream: &UnixStream) -> io::Result<FromFabric> {
    match channel::receive_within(stream, PATIENCE)? {
        Some((message, _)) => Ok(message),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the new fabric ended")),
    }
}

fn unexpected(message: &FromFabric) -> io::Error {
    io::Error::other(format!("the new fabric said {message:?} out of turn"))
}

fn cannot(error: &io::Error) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "the fabric has not been upgraded",
        "look at `taut events` and the fabric's log; traffic goes on",
    )
    .because(error)
}
