//! What `tautd` and VMCI devices say to each other about the host: listeners, connections, violations.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::{FromFabric, PortId};
use taut_virtq::counters::SharedWords;
use tracing::warn;

use super::{Control, send, token};
use crate::sys::epoll::{Epoll, EventFlags, Waker, Watched};
use crate::vsock::{VsockEvent, VsockHandle};

/// Most streams in one message.
const STREAMS: usize = 200;

/// The VMCI devices, and what is to be known about them besides their sessions.
#[derive(Debug)]
pub(super) struct Vmci {
    pub(super) sockets: VsockHandle,
    _alarm: Watched<Waker>,
    /// It serves.
    begun: bool,
    /// What the other fabric told while this one stood by.
    streams: Vec<(u32, OwnedFd)>,
    /// Listening sockets that came meanwhile: the other fabric accepts there.
    listeners: BTreeMap<PortId, OwnedFd>,
    /// What `tautd` was asked and has not answered.
    asked: BTreeSet<(PortId, u32)>,
}

impl Vmci {
    pub(super) fn start(words: &Arc<SharedWords>, events: &Epoll) -> io::Result<Self> {
        let sockets = VsockHandle::start(words)?;
        Ok(Self {
            _alarm: events.watch(sockets.alarm().clone(), token::VMCI, EventFlags::IN)?,
            sockets,
            begun: false,
            streams: Vec::new(),
            listeners: BTreeMap::new(),
            asked: BTreeSet::new(),
        })
    }

    /// Begins to serve, if it has not.
    pub(super) fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            self.sockets.begin(std::mem::take(&mut self.streams));
        }
    }

    /// Accepts from the host, too. The rings run: whoever connects would be turned away otherwise.
    pub(super) fn listen(&mut self) {
        for (port, listener) in std::mem::take(&mut self.listeners) {
            self.sockets.host_listener(port, listener);
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// `tautd` has answered a question; what nobody asked is closed.
    pub(super) fn answer(&mut self, port: PortId, request: u32, mut fds: Vec<OwnedFd>) {
        if !self.asked.remove(&(port, request)) {
            return;
        }
        let socket = match (fds.pop(), fds.len()) {
            (socket, 0) => socket,
            (_, more) => {
                warn!(port = port.0, "{} descriptors came with a connection that takes one", more + 1);
                None
            }
        };
        self.sockets.host_connected(port, request, socket);
    }

    /// There is no `tautd` that would answer what it was asked: nobody listens.
    pub(super) fn nobody_answers(&mut self) {
        for (port, request) in std::mem::take(&mut self.asked) {
            self.sockets.host_connected(port, request, None);
        }
    }
}

impl Control {
    /// Programs of the host reach a device's guest by this listening socket.
    pub(super) fn host_listener(&mut self, port: PortId, mut fds: Vec<OwnedFd>) {
        let listener = match (fds.pop(), fds.len()) {
            (Some(listener), 0) => listener,
            (last, more) => {
                let got = more + usize::from(last.is_some());
                return warn!(port = port.0, "{got} descriptors came with a listening socket that takes one");
            }
        };
        if self.vmci.sockets.device(port).is_none() {
            return warn!("{port} is no VMCI device; its listening socket is closed");
        }
        if self.vmci.begun {
            self.vmci.sockets.host_listener(port, listener);
        } else {
            self.vmci.listeners.insert(port, listener);
        }
    }

    /// Connections with the host that the other fabric has told; they go on at [`taut_api::fabric::ToFabric::TakeOver`].
    pub(super) fn host_streams(&mut self, connections: Vec<u32>, fds: Vec<OwnedFd>) {
        if !self.standby {
            return warn!("streams of another fabric came to one that does not stand by; closed");
        }
        if connections.len() != fds.len() {
            return warn!("{} descriptors came with {} streams; closed", fds.len(), connections.len());
        }
        self.vmci.streams.extend(connections.into_iter().zip(fds));
    }

    /// Tells the streams with the host, before the last word.
    pub(super) fn hand_over_streams(&mut self, streams: &[(u32, OwnedFd)]) {
        for some in streams.chunks(STREAMS) {
            let connections = some.iter().map(|(connection, _)| *connection).collect();
            let fds: Vec<_> = some.iter().map(|(_, stream)| stream.as_fd()).collect();
            send(&mut self.peer, &FromFabric::HostStreams { connections }, &fds);
        }
    }

    /// VMCI devices have something to tell.
    pub(super) fn vmci_news(&mut self) {
        for news in self.vmci.sockets.take_events() {
            match news {
                VsockEvent::HostConnect { port, request, to } => {
                    self.vmci.asked.insert((port, request));
                    if self.greeted() {
                        send(&mut self.peer, &FromFabric::HostConnect { port, request, to }, &[]);
                    }
                }
                VsockEvent::Violation { port, what } => {
                    if let Some(entry) = self.entries.get_mut(&port) {
                        entry.warn(Instant::now(), &what);
                    }
                    if self.greeted() {
                        send(&mut self.peer, &FromFabric::Violation { port, what }, &[]);
                    }
                }
                VsockEvent::Broken { port, queue, failure } => {
                    if let Some(entry) = self.entries.get_mut(&port) {
                        entry.fail(queue, failure, &self.events);
                    }
                }
            }
        }
    }
}
