//! Hands everything of one fabric to a new one. The new fabric stands by until it has all of it,
//! and then serves every port at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::{Abilities, ForeignFd, FromFabric, PortId, ToFabric, channel};

use super::Shared;
use super::abilities::{fit, unfit};
use super::conversation::Conversation;
use super::held::Attach;
use super::supervisor::{Greeting, PATIENCE};

/// State that a standing-by fabric has received, and the time per step.
#[derive(Debug)]
pub(super) struct Given {
    version: String,
    revision: u64,
    abilities: Abilities,
    /// Ports that it received something for.
    pub(super) ports: u32,
    /// Ports that it cannot serve, and why.
    pub(super) refused: BTreeMap<PortId, String>,
    pub(super) start_us: u64,
    pub(super) configure_us: u64,
    pub(super) prepare_us: u64,
}

/// Unix sockets of connections between guests and the host, as in one message, each with its
/// number.
pub(super) type HostStreams = (Vec<u32>, Vec<ForeignFd>);

/// Measures the time of steps.
#[derive(Debug)]
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the microseconds since the last call.
    pub(super) fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let lap = now - std::mem::replace(&mut self.0, now);
        lap.as_micros().try_into().unwrap_or(u64::MAX)
    }
}

impl Shared {
    /// Gives a new fabric the configuration and the descriptors of all ports.
    pub(super) fn give(&self, stream: &UnixStream, watch: &mut Watch) -> io::Result<Given> {
        let Greeting { version, abilities, .. } = Self::greet(stream)?;
        let start_us = watch.lap();
        let (config, queue_pairs, mut messages, host_sockets, ports) = {
            let wanted = self.wanted();
            let held = &wanted.held;
            let ports = held.ports().len() as u32;
            (wanted.config.clone(), held.queue_pairs(), held.messages(), held.host_sockets(), ports)
        };
        let revision = config.revision;
        let unfit: Vec<_> = unfit(abilities, &config).collect();
        let fits = |(_, message, _): &Attach| fit(abilities, message).is_some();
        messages.retain(fits);
        let answers = messages.len();
        let messages: Vec<_> =
            queue_pairs.into_iter().filter(fits).chain(messages).chain(host_sockets).collect();
        let mut refused = BTreeMap::new();
        let configure = ToFabric::Configure(config);
        // Send and receive at the same time: the fabric must not block while it has much to send.
        let (configure_us, prepare_us) = std::thread::scope(|scope| {
            let told = scope.spawn(|| tell(stream, abilities, &configure, &messages));
            self.configured(stream, unfit)?;
            let configure_us = watch.lap();
            for _ in 0..answers {
                refused.extend(prepared(stream)?);
            }
            told.join().unwrap_or_else(|_| Err(io::Error::other("telling it everything panicked")))?;
            io::Result::Ok((configure_us, watch.lap()))
        })?;
        Ok(Given { version, revision, abilities, ports, refused, start_us, configure_us, prepare_us })
    }

    fn configured(&self, stream: &UnixStream, unfit: Vec<(PortId, String)>) -> io::Result<()> {
        match next_message(stream)? {
            FromFabric::Configured { refused, .. } => {
                self.note_refused(refused.into_iter().chain(unfit).collect());
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Gives the new fabric the ports again that have changed since.
    pub(super) fn give_changed(&self, stream: &UnixStream, changed: &BTreeSet<PortId>) -> io::Result<()> {
        let messages: Vec<_> = {
            let wanted = self.wanted();
            changed.iter().flat_map(|&port| wanted.held.messages_of(port)).collect()
        };
        attach(stream, &messages)
    }

    /// Lets the new fabric begin to serve, with the old one's connections between guests and the
    /// host. Its messages from now on belong to the returned conversation.
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
                // A refusal of something that changed meanwhile is reported again as a port state.
                FromFabric::Prepared { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
        let (version, configured) = (given.version.clone(), Some(given.revision));
        Ok(Conversation {
            version,
            configured,
            handed_over: true,
            abilities: given.abilities,
            ..Conversation::default()
        })
    }
}

/// Reads the answer to one attachment: accepted, or the refused port and the reason.
fn prepared(stream: &UnixStream) -> io::Result<Option<(PortId, String)>> {
    match next_message(stream)? {
        FromFabric::Prepared { port, refused } => Ok(refused.map(|why| (port, why))),
        other => Err(unexpected(&other)),
    }
}

fn tell(
    stream: &UnixStream,
    abilities: Abilities,
    configure: &ToFabric,
    messages: &[Attach],
) -> io::Result<()> {
    channel::send_within(stream, &ToFabric::StandBy, &[], PATIENCE)?;
    if let Some(configure) = fit(abilities, configure) {
        channel::send_within(stream, &*configure, &[], PATIENCE)?;
    }
    attach(stream, messages)
}

fn attach(stream: &UnixStream, messages: &[Attach]) -> io::Result<()> {
    for (_, message, fds) in messages {
        let fds: Vec<_> = fds.iter().map(|fd: &Arc<ForeignFd>| fd.as_fd()).collect();
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
