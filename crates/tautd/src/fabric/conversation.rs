//! Messages of the fabric, and their handling.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use taut_api::event::Level;
use taut_api::fabric::closing::MOST_WAITING;
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{Abilities, Ability, ForeignFd, FromFabric, PortId, SessionRecord, ToFabric, discard};
use taut_api::link::Link;

use super::Shared;
use super::abilities::{fit, unfit};
use crate::inbox::Message;

/// Text of the event about a descriptor whose close does not end.
const CLOSE_BLOCKED: &str = "a descriptor that the front end or a peer of the port sent has been closing for more than \
                             1 s; other ports are not affected; hint: end the server of that file system or the peer \
                             of that socket, then restart the VM";

/// Reason why a fabric of an earlier version does not use memory for queue pairs.
const UNKNOWN_QUEUE_PAIRS: &str = "its queue pairs are not used, because the running fabric is of an earlier version \
                                   that does not know them; hint: to replace it while traffic goes on: taut daemon \
                                   upgrade-fabric";

/// Reason of a quarantine for descriptors that this daemon cannot close.
const CLOGGED: &str = "connections of the front end cannot be closed, because descriptors that it sent wait in them; \
                       hint: end the server of that file system or the peer of that socket, then restart the VM";

/// Text of the event about a Unix socket of a VMCI device over which too many descriptors came.
/// `of` is the port of the program that listens at it; clients connect at the socket without one.
fn socket_full(of: Option<u32>) -> String {
    let (socket, senders, refused) = match of {
        Some(port) => (format!("vmci.sock_{port}"), "the program at it has", "connections of the guest"),
        None => ("vmci.sock".to_owned(), "its clients have", "clients"),
    };
    format!(
        "{socket} takes no new {refused}, because its queue is full: at least {MOST_WAITING} descriptors that {senders} \
         sent wait for their close; others are not affected; it serves again when all of them are closed; hint: end \
         the sender, and the server of the descriptors' file system or the peer of their socket"
    )
}

/// State of one connection.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// Version of the fabric; empty if it is not known.
    pub(super) version: String,
    /// Revision of the configuration that is in force.
    pub(super) configured: Option<u64>,
    /// Ports whose state was reported.
    pub(super) told: BTreeSet<PortId>,
    /// True if this fabric has received everything that the last one had.
    pub(super) handed_over: bool,
    /// Abilities of the fabric.
    pub(super) abilities: Abilities,
    /// A ping was sent and is not answered yet.
    pub(super) pinged: bool,
    /// Number of ping intervals since its last answer.
    pub(super) unanswered: u32,
    /// Time for which one of its threads was seen without progress.
    pub(super) silence: Duration,
}

impl Shared {
    pub(super) fn hear(&self, conversation: &mut Conversation, message: FromFabric, fds: Vec<OwnedFd>) {
        match message {
            // Sent only in answer to the successor's steps, which read these messages themselves.
            FromFabric::Welcome { .. }
            | FromFabric::Prepared { .. }
            | FromFabric::TookOver
            | FromFabric::Stopped => {}
            // Useful only to the next fabric, while one takes over.
            FromFabric::HostStreams { .. } => discard(fds),
            FromFabric::Pong { silent_ms } => {
                (conversation.pinged, conversation.unanswered) = (false, 0);
                conversation.silence = Duration::from_millis(silent_ms);
                return;
            }
            FromFabric::HostConnect { port, request, to } => self.connect_to_host(port, request, to),
            FromFabric::Violation { port, what } => self.vmci_event(port, "vmci.violation", &what),
            FromFabric::TakesNothing { port } => {
                let what = "the guest has taken nothing from its VMCI device for 1 s: its peers wait";
                self.vmci_event(port, "vmci.stalled", what);
            }
            FromFabric::CloseBlocked { port } => self.close_blocked(port),
            FromFabric::HostSocketFull { port, of } => {
                self.vmci_event(port, "vmci.socket-full", &socket_full(of));
            }
            FromFabric::Configured { revision, refused } => {
                conversation.configured = Some(revision);
                let unfit: Vec<_> = unfit(conversation.abilities, &self.wanted().config).collect();
                self.note_refused(refused.into_iter().chain(unfit).collect());
            }
            FromFabric::Groups { segment, groups } => {
                self.board.lock().groups.insert(segment, groups);
                return;
            }
            FromFabric::Attached { port, via } => self.attached(port, &via, fds),
            FromFabric::Session(record) => self.session(record, fds),
            FromFabric::SessionEnded { port, reason, quarantined } => {
                tracing::debug!(%port, reason, "session ended");
                if quarantined {
                    self.quarantine(port, &reason);
                }
                self.wanted().held.end_session(port);
                self.note_session(port);
            }
            FromFabric::PortState { port, link, reason, attached, unused_queue_pairs } => {
                conversation.told.insert(port);
                self.port_state(conversation, port, link, reason.as_deref(), attached);
                self.note_unused_queue_pairs(conversation.abilities, port, unused_queue_pairs);
            }
        }
        self.look_whether_ready(conversation);
    }

    /// Returns whether the fabric has received everything that it should serve.
    pub(super) fn is_ready(&self, conversation: &Conversation) -> bool {
        conversation.handed_over && conversation.configured == Some(self.wanted().config.revision)
    }

    /// Marks the fabric ready when the newest configuration is in force and every port's state is
    /// known. Ports that the last fabric served are attached first.
    fn look_whether_ready(&self, conversation: &mut Conversation) {
        let wanted = self.wanted();
        if conversation.configured != Some(wanted.config.revision) {
            return;
        }
        {
            let mut seen = self.board.lock();
            if std::mem::take(&mut seen.awaits_fabric) {
                // A round that has sent this configuration and has not ended tells its revision
                // itself.
                seen.in_force = seen.reconciled;
            }
        }
        let refused = self.board.lock().refused_ports.clone();
        let unknown = |id: &PortId| !conversation.told.contains(id) && !refused.contains_key(id);
        if super::owners(&wanted.config).any(|(id, _)| unknown(&id)) {
            return;
        }
        drop(wanted);
        if !conversation.handed_over {
            conversation.handed_over = true;
            self.hand_over(conversation.abilities);
        }
        let was_ready = std::mem::replace(&mut self.board.lock().observed.fabric.ready, true);
        if !was_ready {
            self.inbox.send(Message::Wake);
        }
    }

    /// Notes whether the fabric uses the memory for queue pairs that a device is configured with.
    /// Raises an event for each new reason why it does not.
    fn note_unused_queue_pairs(&self, abilities: Abilities, port: PortId, why: Option<String>) {
        let wanted = self.wanted();
        let device = wanted.config.sockets.iter().find(|socket| socket.id == port);
        let Some((device, memory)) = device.and_then(|device| Some((device, device.queue_pairs?))) else {
            return;
        };
        let owner = device.owner.clone();
        drop(wanted);
        let refused = why.map(|why| {
            format!("its queue pairs are not used, because the fabric refuses their memory: {why}; hint: stop and start it")
        });
        let is_known = abilities.has(Ability::QueuePairs)
            && (abilities.has(Ability::LongRings) || !memory.has_long_rings());
        let unknown = || (!is_known).then(|| UNKNOWN_QUEUE_PAIRS.to_owned());
        let why = refused.or_else(unknown);
        let mut seen = self.board.lock();
        let state = seen.observed.fabric.ports.entry(port).or_default();
        let is_news = why.is_some() && state.unused_queue_pairs != why;
        state.unused_queue_pairs.clone_from(&why);
        drop(seen);
        if let Some(why) = why.filter(|_| is_news) {
            self.store.event(Level::Warning, &owner, "vmci.no-queue-pairs", &why);
        }
    }

    /// Gives a new fabric everything that the last one had.
    fn hand_over(&self, abilities: Abilities) {
        let wire = self.wire();
        let (queue_pairs, mut messages, host_sockets) = {
            let held = &self.wanted().held;
            (held.queue_pairs(), held.messages(), held.host_sockets())
        };
        let mut seen = self.board.lock();
        messages
            .retain(|(port, message, _)| !seen.observed.attached(*port) && fit(abilities, message).is_some());
        for (port, ..) in &messages {
            seen.observed.fabric.ports.entry(*port).or_default().attached = true;
        }
        drop(seen);
        for (_, message, fds) in queue_pairs.into_iter().chain(messages).chain(host_sockets) {
            super::send(wire.as_ref(), &message, &fds);
        }
    }

    /// Keeps the descriptors of a fabric that outlived its `tautd`.
    fn attached(&self, port: PortId, via: &Attachment, fds: Vec<OwnedFd>) {
        let mut wanted = self.wanted();
        let expected = via.descriptors();
        if fds.len() != expected {
            tracing::warn!(%port, got = fds.len(), expected, "an attachment came without its descriptors");
            return discard(fds);
        }
        // The number may have belonged to another port until now.
        if !wanted.has(port) || wanted.new_ports.contains(&port) {
            for fd in fds {
                drop(wanted.held.foreign(port, fd));
            }
        } else {
            wanted.held.keep_found(port, via, fds);
        }
    }

    fn session(&self, record: SessionRecord, fds: Vec<OwnedFd>) {
        let expected = record.descriptors().len();
        if fds.len() != expected {
            tracing::warn!(port = %record.port, got = fds.len(), expected, "a session came without its descriptors");
            return discard(fds);
        }
        let mut wanted = self.wanted();
        let port = record.port;
        if wanted.has(port) {
            wanted.held.keep_session(record, fds);
        } else {
            discard(fds);
        }
        drop(wanted);
        self.note_session(port);
    }

    /// Updates on the board whether a known port has a session.
    pub(super) fn note_session(&self, port: PortId) {
        let session = self.wanted().held.has_session(port);
        if let Some(state) = self.board.lock().observed.fabric.ports.get_mut(&port) {
            state.session = session;
        }
    }

    /// Attaches nothing to the port until its VM is restarted, or the user detaches it.
    pub(super) fn quarantine(&self, port: PortId, reason: &str) {
        let Some(owner) = super::owner(&self.wanted().config, port).map(str::to_owned) else { return };
        self.wanted().held.release(port);
        let mut seen = self.board.lock();
        let vm = owner.strip_prefix("vm/").and_then(|rest| rest.split('/').next()?.parse().ok());
        let process = vm.and_then(|vm| seen.observed.process(&vm).map(|process| process.pid));
        seen.observed.fabric.quarantined.insert(port, process);
        drop(seen);
        self.store.event(Level::Warning, &owner, "port.quarantined", reason);
    }

    /// Raises an event about a descriptor of a port whose close does not end.
    pub(super) fn close_blocked(&self, port: PortId) {
        let Some(owner) = super::owner(&self.wanted().config, port).map(str::to_owned) else { return };
        self.store.event(Level::Warning, &owner, "port.close-blocked", CLOSE_BLOCKED);
    }

    /// Shuts out front ends of whose sessions this daemon holds more duplicates than it can close.
    pub(super) fn shut_out_clogged(&self) {
        let clogged = self.wanted().held.clogged();
        // A thread that is just sending may be waiting for the fabric, and so would this. Then the
        // next second is soon enough.
        let Ok(wire) = self.wire.try_lock() else { return };
        for port in clogged {
            self.quarantine(port, CLOGGED);
            // A closed connection takes the place of what is attached.
            if let Ok((closed, _)) = UnixStream::pair() {
                let closed = Arc::new(ForeignFd::own(closed.into()));
                let attach = ToFabric::Attach { port, via: Attachment::Connected };
                super::send(wire.as_ref(), &attach, &[closed]);
            }
        }
    }

    fn vmci_event(&self, port: PortId, kind: &'static str, what: &str) {
        // A device that is no longer wanted has no owner to report to.
        let owner = super::owner(&self.wanted().config, port).map(str::to_owned);
        if let Some(owner) = owner {
            self.store.event(Level::Warning, &owner, kind, what);
        }
    }

    fn port_state(
        &self,
        conversation: &Conversation,
        port: PortId,
        link: Link,
        reason: Option<&str>,
        attached: bool,
    ) {
        let mut wanted = self.wanted();
        let in_force = conversation.configured == Some(wanted.config.revision);
        let Some(owner) = super::owner(&wanted.config, port).map(str::to_owned) else { return };
        let noun = if wanted.is_vmci(port) { "vmci" } else { "port" };
        if wanted.new_ports.contains(&port) && !in_force {
            return;
        }
        if !attached && conversation.handed_over {
            wanted.held.release(port);
        }
        let session = wanted.held.has_session(port);
        drop(wanted);
        let mut seen = self.board.lock();
        let state = seen.observed.fabric.ports.entry(port).or_default();
        let changed = state.link != link;
        let path_changed = !changed && link == Link::Up && state.reason.as_deref() != reason;
        state.link = link;
        state.reason = reason.map(str::to_owned);
        state.attached = attached;
        state.session = session;
        drop(seen);
        if changed {
            let (level, what) = match link {
                Link::Up => (Level::Info, "up"),
                Link::Down => (Level::Info, "down"),
                Link::Broken => (Level::Warning, "broken"),
            };
            let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            self.store.event(level, &owner, &format!("{noun}.{what}"), &format!("the link is {what}{why}"));
        } else if path_changed {
            match reason {
                Some(why) => self.store.event(Level::Warning, &owner, "uplink.no-path", why),
                None => self.store.event(
                    Level::Info,
                    &owner,
                    "uplink.path",
                    "its path is not missed any more: it was heard again, or nothing is probed",
                ),
            }
        }
        self.inbox.send(Message::Wake);
    }
}
