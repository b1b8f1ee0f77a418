//! Vsock devices and the host: listening sockets, connections and violations.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use taut_api::fabric::config::{SocketConfig, SocketWorker};
use taut_api::fabric::{FromFabric, PortId, discard};
use taut_virtq::counters::SharedWords;
use tracing::warn;

use super::heartbeat::Progress;
use super::queue_pair_memory::RegionFd;
use super::{Control, token};
use crate::sys::epoll::{Epoll, EventFlags, Waker, Watched};
use crate::vhost_user::Device;
use crate::vsock::{RegionRefused, VsockEvent, VsockHandle};

/// Largest number of streams in one message.
const STREAMS: usize = 200;

/// The vsock devices, and what the control thread keeps about them besides their sessions.
#[derive(Debug)]
pub(super) struct VsockDevices {
    handle: VsockHandle,
    _alarm: Watched<Waker>,
    /// The devices are served.
    begun: bool,
    /// Streams of the other process, received while this one stood by.
    streams: Vec<(u32, OwnedFd)>,
    /// Listening sockets received in standby, on which the other process still accepts.
    listeners: BTreeMap<PortId, OwnedFd>,
    /// Connections that `tautd` was asked to open and has not answered.
    asked: BTreeSet<(PortId, u32)>,
}

impl VsockDevices {
    /// Starts the vsock thread, without devices.
    pub(super) fn start(words: &Arc<SharedWords>, events: &Epoll) -> io::Result<Self> {
        let handle = VsockHandle::start(words)?;
        Ok(Self {
            _alarm: events.watch(handle.alarm().clone(), token::VSOCK, EventFlags::IN)?,
            handle,
            begun: false,
            streams: Vec::new(),
            listeners: BTreeMap::new(),
            asked: BTreeSet::new(),
        })
    }

    /// Puts a configuration into force, and returns the devices that cannot be made, with reasons.
    pub(super) fn configure(
        &mut self,
        devices: &[SocketConfig],
        worker: &SocketWorker,
        near: &[u32],
    ) -> Vec<(PortId, String)> {
        self.handle.configure(devices, worker, near)
    }

    /// The device that a session drives; `None` if it is not configured.
    pub(super) fn device(&self, port: PortId) -> Option<Arc<dyn Device>> {
        self.handle.device(port)
    }

    /// Has a device use this memory for queue pairs.
    pub(super) fn set_region(&mut self, port: PortId, held: &RegionFd) -> Result<(), RegionRefused> {
        self.handle.set_region(port, held.file(), held.place())
    }

    /// Has a device use no memory for queue pairs.
    pub(super) fn remove_region(&mut self, port: PortId) {
        self.handle.remove_region(port);
    }

    /// Begins to serve, unless it has begun.
    pub(super) fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            self.handle.begin(std::mem::take(&mut self.streams));
        }
    }

    /// The progress of the thread.
    pub(super) fn progress(&self) -> Progress {
        self.handle.progress()
    }

    /// Accepts connections from the host. The rings must run first: earlier clients are refused.
    pub(super) fn listen(&mut self) {
        for (port, listener) in std::mem::take(&mut self.listeners) {
            self.handle.host_listener(port, listener);
        }
    }

    /// Tells whether the devices are served.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Stops serving, and returns the streams that the next process needs.
    pub(super) fn stop(&mut self) -> Vec<(u32, OwnedFd)> {
        self.handle.stop()
    }

    /// Passes on an answer of `tautd`. A socket that nobody asked for is closed.
    pub(super) fn answer(&mut self, port: PortId, request: u32, mut fds: Vec<OwnedFd>) {
        if !self.asked.remove(&(port, request)) {
            return discard(fds);
        }
        let socket = match (fds.pop(), fds.len()) {
            (socket, 0) => socket,
            (_, more) => {
                warn!(port = port.0, "{} descriptors came with a connection that takes one", more + 1);
                None
            }
        };
        discard(fds);
        self.handle.host_connected(port, request, socket);
    }

    /// Refuses all open questions: there is no `tautd` that would answer.
    pub(super) fn refuse_questions(&mut self) {
        for (port, request) in std::mem::take(&mut self.asked) {
            self.handle.host_connected(port, request, None);
        }
    }
}

impl Control {
    /// Takes the listening socket by which programs of the host reach a device's guest.
    pub(super) fn host_listener(&mut self, port: PortId, mut fds: Vec<OwnedFd>) {
        let listener = match (fds.pop(), fds.len()) {
            (Some(listener), 0) => listener,
            (last, more) => {
                let got = more + usize::from(last.is_some());
                discard(last.into_iter().chain(fds));
                return warn!(port = port.0, "{got} descriptors came with a listening socket that takes one");
            }
        };
        if self.vsock.device(port).is_none() {
            discard([listener]);
            return warn!("{port} is no VMCI device; its listening socket is closed");
        }
        if self.vsock.begun {
            self.vsock.handle.host_listener(port, listener);
        } else {
            self.vsock.listeners.insert(port, listener);
        }
    }

    /// Takes the host connections of the other process, which are served once this one takes over.
    pub(super) fn host_streams(&mut self, connections: Vec<u32>, fds: Vec<OwnedFd>) {
        if !self.standby {
            discard(fds);
            return warn!("streams of another fabric came to one that does not stand by; closed");
        }
        if connections.len() != fds.len() {
            warn!("{} descriptors came with {} streams; closed", fds.len(), connections.len());
            return discard(fds);
        }
        self.vsock.streams.extend(connections.into_iter().zip(fds));
    }

    /// Sends the host connections to `tautd`, for the next process.
    pub(super) fn hand_over_streams(&mut self, streams: &[(u32, OwnedFd)]) {
        for some in streams.chunks(STREAMS) {
            let connections = some.iter().map(|(connection, _)| *connection).collect();
            let fds: Vec<_> = some.iter().map(|(_, stream)| stream.as_fd()).collect();
            self.tautd.send(&FromFabric::HostStreams { connections }, &fds);
        }
    }

    /// Handles events of the vsock thread.
    pub(super) fn handle_vsock_events(&mut self) {
        for event in self.vsock.handle.take_events() {
            match event {
                VsockEvent::HostConnect { port, request, to } => {
                    self.vsock.asked.insert((port, request));
                    self.tautd.send(&FromFabric::HostConnect { port, request, to }, &[]);
                }
                VsockEvent::Violation { port, what } => {
                    if let Some(entry) = self.entries.get_mut(&port) {
                        entry.warn(Instant::now(), &what);
                    }
                    self.tautd.send(&FromFabric::Violation { port, what }, &[]);
                }
                VsockEvent::TakesNothing { port } => {
                    self.tautd.send(&FromFabric::TakesNothing { port }, &[]);
                }
                VsockEvent::HostSocketFull { port, of } => {
                    self.tautd.send(&FromFabric::HostSocketFull { port, of }, &[]);
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
