//! Messages from `tautd`: each is carried out here or passed to its file.

use std::time::Instant;

use rustix::net::{SocketFlags, accept_with};
use taut_api::fabric::closing;
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{Abilities, ClosingQueue, ForeignFd, FromFabric, PROTOCOL, PortId, ToFabric};
use taut_api::link::Link;
use tracing::{info, warn};

use super::Control;

impl Control {
    /// Accepts a connection of `tautd`. The newest connection replaces the one before.
    pub(super) fn accept_tautd(&mut self) {
        let socket = match accept_with(&*self.listener, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(error) => return warn!("cannot accept tautd's connection: {error}"),
        };
        self.known = true;
        if let Err(error) = self.tautd.connect(socket, &self.events) {
            warn!("cannot serve tautd's connection: {error}");
        }
    }

    /// Carries out one message of `tautd`. Returns `true` for the last one.
    pub(super) fn serve_tautd(&mut self) -> bool {
        let Some((message, fds)) = self.tautd.receive() else { return false };
        match message {
            ToFabric::Hello { protocol } => self.greet(protocol),
            _ if !self.tautd.is_greeted() => {
                warn!("tautd sent no greeting; disconnected");
                self.tautd.disconnect();
            }
            ToFabric::StandBy => self.stand_by(),
            ToFabric::TakeOver { ports } => self.take_over(&ports.into_iter().collect()),
            ToFabric::Configure(config) => self.configure(config),
            ToFabric::Attach { port, via } => {
                let strangers = self.entries.get(&port).map(|entry| &entry.strangers);
                let fds = ForeignFd::all(fds, strangers.unwrap_or(&ClosingQueue::new(port)));
                if self.standby { self.prepare(port, via, fds) } else { self.attach(port, via, fds) }
            }
            ToFabric::HostListener { port } => self.host_listener(port, fds),
            ToFabric::QueuePairMemory { port } => self.queue_pair_memory(port, fds),
            ToFabric::HostConnected { port, request } => self.vsock.answer(port, request, fds),
            ToFabric::HostStreams { connections } => self.host_streams(connections, fds),
            ToFabric::Capture { port, snaplen, directions } => {
                self.begin_capture(port, snaplen, directions, fds);
            }
            ToFabric::Ping => self.answer_ping(),
            ToFabric::Quit => return true,
        }
        false
    }

    /// Answers the greeting of `tautd` and sends everything that it has to know.
    fn greet(&mut self, protocol: u32) {
        let welcome = FromFabric::Welcome {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            revision: self.config.revision,
            abilities: Abilities::all(),
        };
        self.tautd.welcome(&welcome, protocol == PROTOCOL);
        if protocol != PROTOCOL {
            warn!("tautd speaks version {protocol} of the protocol, the fabric {PROTOCOL}; disconnected");
            self.tautd.disconnect();
            return;
        }
        info!("tautd has connected");
        for (&port, entry) in &mut self.entries {
            self.tautd.tell_attachment(port, entry);
            if let Some(session) = &mut entry.session {
                self.tautd.record(session);
            }
            entry.forget_reported();
        }
    }

    fn answer_ping(&mut self) {
        self.shut_out_harmful();
        self.captures.tell_losses();
        for port in closing::overdue() {
            self.tautd.send(&FromFabric::CloseBlocked { port }, &[]);
        }
        let threads = self.workers.progress().chain([self.vsock.progress()]);
        let silence = self.heartbeat.silence(Instant::now(), threads);
        let silent_ms = silence.as_millis().try_into().unwrap_or(u64::MAX);
        self.tautd.send(&FromFabric::Pong { silent_ms }, &[]);
    }

    /// Attaches a device, a socket or a session to a port.
    fn attach(&mut self, port: PortId, via: Attachment, fds: Vec<ForeignFd>) {
        let Some(entry) = self.entries.get_mut(&port) else {
            let reason = Some(format!("{port} is not configured"));
            let (link, attached, unused_queue_pairs) = (Link::Down, false, None);
            let state = FromFabric::PortState { port, link, reason, attached, unused_queue_pairs };
            return self.tautd.send(&state, &[]);
        };
        if entry.session.is_some() {
            let reason = "replaced by another attachment".to_owned();
            self.tautd.send(&FromFabric::SessionEnded { port, reason, quarantined: false }, &[]);
        }
        match entry.attach(via, fds, &self.events) {
            Ok(()) => {
                self.tautd.tell_attachment(port, entry);
                if let Some(session) = &mut entry.session {
                    self.tautd.record(session);
                }
            }
            Err(error) => entry.refuse(&error),
        }
        entry.forget_reported();
        self.workers.recheck(port);
    }
}
