//! A planned upgrade. The next fabric is started, configured and given everything while the last
//! one still serves. Only then the last one stops, and the next starts the rings at the same
//! positions.
//!
//! The supervisor does all of it with the wire locked, so no other message reaches either fabric. A
//! failure before the old fabric has stopped leaves it serving. A failure afterwards is treated as
//! the fabric's death.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::fabric::{
    Ability, ClosingQueue, ForeignFd, FromFabric, PortId, SessionRecord, ToFabric, channel,
};
use taut_api::route::UpgradedFabric;
use tokio::sync::oneshot;

use super::conversation::Conversation;
use super::successor::{Given, HostStreams, Watch};
use super::supervisor::{Origin, PATIENCE, Running};
use super::{Shared, Wire};
use crate::process::Process;

/// Channel for the result.
pub(crate) type Done = oneshot::Sender<Result<UpgradedFabric, ApiError>>;

/// Pending requests for an upgrade.
#[derive(Debug)]
pub(super) struct Upgrades {
    asked: Mutex<Vec<Done>>,
    requested: OwnedFd,
}

impl Upgrades {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            asked: Mutex::default(),
            requested: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// One upgrade answers all requests that precede it.
    pub(super) fn ask(&self, done: Done) {
        self.list().push(done);
        // Fails only after 2^64 unread requests.
        let _ = rustix::io::write(&self.requested, &1_u64.to_ne_bytes());
    }

    pub(super) fn is_asked_for(&self) -> bool {
        !self.list().is_empty()
    }

    /// Readable after a request, until [`Self::clear_request`].
    pub(super) fn request_fd(&self) -> BorrowedFd<'_> {
        self.requested.as_fd()
    }

    pub(super) fn clear_request(&self) {
        let _ = rustix::io::read(&self.requested, &mut [0; 8]);
    }

    fn list(&self) -> MutexGuard<'_, Vec<Done>> {
        self.asked.lock().expect("no holder panics")
    }

    fn answer(&self, answer: &Result<UpgradedFabric, ApiError>) {
        for done in self.list().drain(..) {
            // The requester may be gone.
            let _ = done.send(answer.clone());
        }
    }
}

/// Remains of a fabric that has stopped.
#[derive(Debug, Default)]
struct Left {
    /// Ports whose sessions have changed since they were prepared.
    changed: BTreeSet<PortId>,
    /// Connections between guests and the host.
    streams: Vec<HostStreams>,
}

impl Shared {
    /// Replaces `old` by a new fabric and answers the requests. `None` if that failed and `old`
    /// continues; an error if both are gone.
    pub(super) fn upgrade(
        &self,
        old: &Process,
        stream: &UnixStream,
        conversation: &mut Conversation,
    ) -> io::Result<Option<Running>> {
        // The wire stays locked until only one fabric is left.
        let mut wire = self.wire();
        let mut watch = Watch::start();
        let (next, given) = match self.prepare(&mut watch) {
            Ok(prepared) => prepared,
            Err(error) => {
                let message = format!(
                    "the fabric, process {}, continues to serve, because the upgrade failed: {error}",
                    old.pid()
                );
                self.store.event(Level::Error, "fabric", "fabric.not-upgraded", &message);
                self.upgrades.answer(&Err(cannot(&error)));
                return Ok(None);
            }
        };
        let taken = self.stop(old, stream, conversation).and_then(|left| {
            let stop_us = watch.lap();
            self.generation.fetch_add(1, Ordering::SeqCst);
            self.give_changed(&next.1, &left.changed)?;
            // Record the new fabric before it touches a ring: a later daemon must find it, or know
            // that it has ended.
            self.paths.succeed(&next.0)?;
            Ok((stop_us, self.take_over(&next.1, &given, &left.streams)?))
        });
        let (process, stream) = next;
        let (stop_us, conversation) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                // Kill it in any case: the next fabric must find the rings released.
                process.kill(PATIENCE);
                self.upgrades.answer(&Err(cannot(&error)));
                return Err(error);
            }
        };
        let take_over_us = watch.lap();
        *wire = Some(Wire { stream: stream.try_clone()?, abilities: conversation.abilities });
        drop(wire);
        let report = UpgradedFabric {
            old_pid: old.pid(),
            new_pid: process.pid(),
            ports: given.ports,
            start_us: given.start_us,
            configure_us: given.configure_us,
            prepare_us: given.prepare_us,
            stop_us,
            take_over_us,
            gap_us: stop_us + take_over_us,
        };
        let message = format!(
            "the fabric, process {}, took over from process {}: {} ports were not served for {:.1} ms",
            report.new_pid,
            report.old_pid,
            report.ports,
            report.gap_us as f64 / 1000.0
        );
        self.store.event(Level::Info, "fabric", "fabric.upgraded", &message);
        // Update the board before answering, so that requesters see the new process.
        {
            let mut seen = self.board.lock();
            seen.observed.fabric.pid = Some(process.pid());
            seen.note_fabric(&conversation.version, conversation.abilities.has(Ability::NetworkIo));
        }
        self.upgrades.answer(&Ok(report));
        Ok(Some(Running { process, stream, origin: Origin::TookOver(conversation) }))
    }

    /// Starts a fabric and gives it everything. One that refuses something is ended again.
    fn prepare(&self, watch: &mut Watch) -> io::Result<((Process, UnixStream), Given)> {
        self.board.lock().fabric_starts += 1;
        let (process, stream) = self.paths.spawn_beside()?;
        let given = self.give(&stream, watch).and_then(|given| match given.refused.first_key_value() {
            None => Ok(given),
            Some((port, why)) => {
                let owner = self.wanted().owners().remove(port).unwrap_or_else(|| port.to_string());
                Err(io::Error::other(format!("the new fabric cannot serve {owner}: {why}")))
            }
        });
        match given {
            Ok(given) => Ok(((process, stream), given)),
            Err(error) => {
                process.kill(PATIENCE);
                Err(error)
            }
        }
    }

    /// Stops the old fabric. One that only waits for a CPU gets time, because killing it would lose
    /// connections.
    fn stop(&self, old: &Process, stream: &UnixStream, conversation: &mut Conversation) -> io::Result<Left> {
        let mut left = Left::default();
        // A failed send means that it died; its last messages still count.
        let _ = channel::send_within(stream, &ToFabric::Quit, &[], PATIENCE);
        let stopped = loop {
            match channel::receive_within(stream, PATIENCE) {
                Ok(Some((FromFabric::Stopped, _))) => break true,
                Ok(Some((FromFabric::HostStreams { connections }, fds))) => {
                    // The next fabric has these sockets of several ports soon.
                    let foreign = |fd| ForeignFd::new(fd, &ClosingQueue::unreported());
                    left.streams.push((connections, fds.into_iter().map(foreign).collect()));
                }
                Ok(Some((message, fds))) => {
                    match &message {
                        FromFabric::Session(SessionRecord { port, .. })
                        | FromFabric::SessionEnded { port, .. } => _ = left.changed.insert(*port),
                        _ => {}
                    }
                    self.hear(conversation, message, fds);
                }
                Ok(None) | Err(_) => break false,
            }
        };
        if !stopped {
            // The fabric died or hangs. Kill it, so that it no longer owns the rings.
            if !old.halt(Duration::ZERO, PATIENCE).has_halted() {
                return Err(io::Error::other("the old fabric cannot be ended"));
            }
            // Its record of connections may be incomplete, so they are reset.
            left.streams.clear();
        }
        Ok(left)
    }
}

fn cannot(error: &io::Error) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "the fabric was not upgraded",
        "`taut events` and the fabric's log have details; traffic continues",
    )
    .because(error)
}
