//! Giving a fabric that has just started everything that another had, or still has: it stands by until it has all of it, and
//! then serves every port at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::{FabricConfig, FromFabric, PortId, ToFabric, channel};

use super::Shared;
use super::conversation::Conversation;
use super::held::Attach;
use super::supervisor::PATIENCE;

/// What a fabric that stands by has been given, and how long that took.
#[derive(Debug)]
pub(super) struct Given {
    revision: u64,
    /// Ports that it was given something for.
    pub(super) ports: u32,
    /// Those that it cannot serve, and why.
    pub(super) refused: BTreeMap<PortId, String>,
    pub(super) start_us: u64,
    pub(super) configure_us: u64,
    pub(super) prepare_us: u64,
}

/// One message's Unix sockets of connections between guests and the host, each with its number.
pub(super) type HostStreams = (Vec<u32>, Vec<OwnedFd>);

/// Tells how long steps take.
#[derive(Debug)]
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Microseconds since the last call.
    pub(super) fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let lap = now - std::mem::replace(&mut self.0, now);
        lap.as_micros().try_into().unwrap_or(u64::MAX)
    }
}

impl Shared {
    /// Gives a new fabric the configuration and all that ports have.
    pub(super) fn give(&self, stream: &UnixStream, watch: &mut Watch) -> io::Result<Given> {
        Self::greet(stream)?;
        let start_us = watch.lap();
        stream.set_nonblocking(true)?;
        let (config, mut messages, host_sockets, ports) = {
            let wanted = self.wanted();
            let held = &wanted.held;
            (wanted.config.clone(), held.messages(), held.host_sockets(), held.ports().len() as u32)
        };
        let revision = config.revision;
        let answers = messages.len();
        messages.extend(host_sockets);
        let mut refused = BTreeMap::new();
        // Both directions at once: a fabric that has much to say must not wait for us to finish.
        let (configure_us, prepare_us) = std::thread::scope(|scope| {
            let told = scope.spawn(|| tell(stream, config, &messages));
            self.configured(stream)?;
            let configure_us = watch.lap();
            for _ in 0..answers {
                refused.extend(prepared(stream)?);
            }
            told.join().unwrap_or_else(|_| Err(io::Error::other("telling it everything panicked")))?;
            io::Result::Ok((configure_us, watch.lap()))
        })?;
        Ok(Given { revision, ports, refused, start_us, configure_us, prepare_us })
    }

    fn configured(&self, stream: &UnixStream) -> io::Result<()> {
        match next_message(stream)? {
            FromFabric::Configured { refused, .. } => {
                self.board.lock().refused_ports = refused.into_iter().collect();
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Gives it again what ports have that have changed since.
    pub(super) fn give_changed(&self, stream: &UnixStream, changed: &BTreeSet<PortId>) -> io::Result<()> {
        let messages: Vec<_> = {
            let wanted = self.wanted();
            changed.iter().flat_map(|&port| wanted.held.messages_of(port)).collect()
        };
        attach(stream, &messages)
    }

    /// Lets it begin, with the connections between guests and the host that the last one had. What it says from now on is part
    /// of the conversation that is returned.
    pub(super) fn take_over(
        &self,
        stream: &UnixStream,
        given: &Given,
        streams: &[HostStreams],
    ) -> io::Result<Conversation> {
        for (connections, fds) in streams {
            let message = ToFabric::HostStreams { connections: connections.clone() };
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            channel::send_within(stream, &message, &fds, PATIENCE)?;
        }
        let ports = {
            let mut wanted = self.wanted();
            for &port in given.refused.keys() {
                wanted.held.release(port);
            }
            wanted.held.ports()
        };
        given.refused.keys().for_each(|&port| self.note_session(port));
        channel::send_within(stream, &ToFabric::TakeOver { ports }, &[], PATIENCE)?;
        loop {
            match next_message(stream)? {
                FromFabric::TookOver => break,
                // What has changed meanwhile and is refused is told again as a port's state.
                FromFabric::Prepared { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
        let configured = Some(given.revision);
        Ok(Conversation { configured, told: BTreeSet::new(), handed_over: true })
    }
}

/// The answer to one attachment: nothing, or which port is refused and why.
fn prepared(stream: &UnixStream) -> io::Result<Option<(PortId, String)>> {
    match next_message(stream)? {
        FromFabric::Prepared { port, refused } => Ok(refused.map(|why| (port, why))),
        other => Err(unexpected(&other)),
    }
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

fn next_message(stream: &UnixStream) -> io::Result<FromFabric> {
    match channel::receive_within(stream, PATIENCE)? {
        Some((message, _)) => Ok(message),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the new fabric ended")),
    }
}

fn unexpected(message: &FromFabric) -> io::Error {
    io::Error::other(format!("the new fabric said {message:?} out of turn"))
}
