//! The connection to `tautd`.
//!
//! The data plane does not wait for `tautd`: one that stops reading, or breaks off in the middle of
//! a message, is disconnected.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use taut_api::fabric::{FromFabric, PortId, ToFabric, channel, peek};
use tracing::{info, warn};

use super::entry::Entry;
use super::token;
use crate::sys::epoll::{Epoll, EventFlags, Watched};
use crate::vhost_user::Session;

/// Longest time that one message may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connected `tautd`.
#[derive(Debug)]
struct Peer {
    socket: Watched<UnixStream>,
    /// `tautd` has sent a greeting with the fabric's protocol version.
    greeted: bool,
}

/// The connection to `tautd`, if there is one.
#[derive(Debug, Default)]
pub(super) struct Tautd(Option<Peer>);

impl Tautd {
    /// Replaces the connection.
    pub(super) fn connect(&mut self, socket: OwnedFd, events: &Epoll) -> io::Result<()> {
        self.disconnect();
        let socket = events.watch(UnixStream::from(socket), token::TAUTD, EventFlags::IN)?;
        self.0 = Some(Peer { socket, greeted: false });
        Ok(())
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.0 = None;
    }

    /// Tells whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.0.is_some()
    }

    /// Answers a greeting. Other messages can follow if it had the right protocol version.
    pub(super) fn welcome(&mut self, welcome: &FromFabric, right_version: bool) {
        self.transmit(welcome, &[]);
        if let Some(peer) = &mut self.0 {
            peer.greeted = right_version;
        }
    }

    /// Tells whether `tautd` has sent its greeting.
    pub(super) fn is_greeted(&self) -> bool {
        self.0.as_ref().is_some_and(|peer| peer.greeted)
    }

    /// Receives a message with its descriptors, and disconnects at the end of the connection.
    ///
    /// Returns `None` also if there is nothing to receive: the event may have been that of an
    /// earlier connection.
    pub(super) fn receive(&mut self) -> Option<(ToFabric, Vec<OwnedFd>)> {
        let peer = self.0.as_ref()?;
        let peeked = peek(&*peer.socket, &mut [0; 1]);
        if matches!(peeked, Err(Errno::AGAIN)) {
            return None;
        }
        match channel::receive_within(&peer.socket, PATIENCE) {
            Ok(Some(received)) => return Some(received),
            Ok(None) => info!("tautd has disconnected; traffic goes on"),
            Err(error) => warn!("tautd's connection failed: {error}; traffic goes on"),
        }
        self.disconnect();
        None
    }

    /// Sends a message. A `tautd` that has sent no greeting yet is not told: it reads the answer to
    /// its greeting first, and then hears the state of everything.
    pub(super) fn send(&mut self, message: &FromFabric, fds: &[BorrowedFd<'_>]) {
        if self.is_greeted() {
            self.transmit(message, fds);
        }
    }

    /// Sends a message. A `tautd` that does not take it is disconnected.
    fn transmit(&mut self, message: &FromFabric, fds: &[BorrowedFd<'_>]) {
        let Some(peer) = &self.0 else { return };
        if let Err(error) = channel::send_within(&peer.socket, message, fds, PATIENCE) {
            warn!("tautd does not take messages: {error}; disconnected");
            self.disconnect();
        }
    }

    /// Sends a port's device or listening socket, which `tautd` needs for the next process.
    pub(super) fn tell_attachment(&mut self, port: PortId, entry: &Entry) {
        if let Some((via, fds)) = entry.device_or_listener() {
            self.send(&FromFabric::Attached { port, via }, &fds);
        }
    }

    /// Sends a session's record, so that the session survives this process.
    pub(super) fn record(&mut self, session: &mut Session) {
        session.mark_recorded();
        self.send(&FromFabric::Session(session.record().clone()), &session.descriptors());
    }

    /// Sends a session's record if it has changed.
    pub(super) fn record_changes(&mut self, session: &mut Session) {
        if session.has_changed() {
            self.record(session);
        }
    }
}
