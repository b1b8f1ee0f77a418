//! The listening sockets of guests on the host, and clients that have not named their port yet.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::SocketFlags;
use taut_api::fabric::ForeignFd;

use super::connect_line::ConnectLine;
use crate::sys::epoll::{Epoll, EventFlags, Watched, set_nonblocking};
use crate::vsock::guest::EventSource;
use crate::vsock::proto::GuestIdx;

/// Clients of one guest that may wait to name their port.
const MAX_CLIENTS: usize = 64;
/// Interval between looks at the sockets that are paused.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A socket at which clients connect to a guest.
#[derive(Debug)]
struct Listener {
    socket: Arc<ForeignFd>,
    /// `None` while the socket is paused.
    watched: Option<Watched<Arc<ForeignFd>>>,
}

/// A client that has not named its port.
#[derive(Debug)]
struct Client {
    guest: GuestIdx,
    socket: Watched<ForeignFd>,
}

/// A client that wants to connect to a port of a guest.
#[derive(Debug)]
pub(crate) struct ConnectRequest {
    pub(crate) guest: GuestIdx,
    pub(crate) port: u32,
    pub(crate) socket: ForeignFd,
}

/// All listening sockets and clients.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// The listening sockets.
    sockets: HashMap<GuestIdx, Listener>,
    /// Guests whose sockets accept nobody until the descriptors that clients have sent are closed.
    paused: Vec<GuestIdx>,
    /// Time of the next look at the paused sockets, if there are any.
    next_look: Option<Instant>,
    clients: HashMap<u32, Client>,
    /// Numbers of the clients of each guest.
    of_guests: HashMap<GuestIdx, HashSet<u32>>,
    /// Number of the newest client.
    newest: u32,
}

impl Listeners {
    /// Replaces the socket at which clients connect to a guest.
    pub(crate) fn listen(&mut self, guest: GuestIdx, socket: ForeignFd, events: &Epoll) -> io::Result<()> {
        set_nonblocking(&socket)?;
        self.close(guest);
        let socket = Arc::new(socket);
        let watched = Some(watch(guest, &socket, events)?);
        self.sockets.insert(guest, Listener { socket, watched });
        Ok(())
    }

    /// Closes the socket at which clients connect to a guest.
    fn close(&mut self, guest: GuestIdx) {
        self.sockets.remove(&guest);
        self.paused.retain(|paused| *paused != guest);
    }

    /// Accepts a client that waits at a guest's socket. Pauses that socket if clients have sent
    /// more descriptors than can be closed.
    pub(crate) fn accept(&mut self, guest: GuestIdx, now: Instant) -> Option<ForeignFd> {
        let listener = self.sockets.get_mut(&guest)?;
        if listener.watched.is_some() && listener.socket.is_clogged() {
            listener.watched = None;
            self.paused.push(guest);
            self.next_look.get_or_insert(now + LOOK_INTERVAL);
        }
        listener.watched.as_ref()?.accept(SocketFlags::NONBLOCK).ok()
    }

    /// Time of the next look at paused sockets, if there are any.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// Looks at the paused sockets, if that is due. Resumes those whose queue of descriptors is
    /// empty. Returns the guests of those whose queue has been full for long, each once.
    pub(crate) fn look(&mut self, now: Instant, events: &Epoll) -> Vec<GuestIdx> {
        if self.next_look.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let Self { sockets, paused, .. } = self;
        let mut full = Vec::new();
        paused.retain(|&guest| {
            let Some(listener) = sockets.get_mut(&guest) else { return false };
            if listener.socket.reports_full() {
                full.push(guest);
            }
            if listener.socket.has_all_closed() {
                // Without a watch it stays paused until the next look.
                listener.watched = watch(guest, &listener.socket, events).ok();
            }
            listener.watched.is_none()
        });
        self.next_look = (!self.paused.is_empty()).then(|| now + LOOK_INTERVAL);
        full
    }

    /// Tells whether a guest has as many clients as may wait.
    pub(crate) fn is_full(&self, guest: GuestIdx) -> bool {
        self.of_guests.get(&guest).is_some_and(|clients| clients.len() >= MAX_CLIENTS)
    }

    /// Adds a client, and returns its number.
    pub(crate) fn add(&mut self, guest: GuestIdx, socket: ForeignFd, events: &Epoll) -> io::Result<u32> {
        self.newest = self.newest.wrapping_add(1);
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let socket = events.watch(socket, EventSource::Client(self.newest).token(), flags)?;
        self.clients.insert(self.newest, Client { guest, socket });
        self.of_guests.entry(guest).or_default().insert(self.newest);
        Ok(self.newest)
    }

    /// Reads what a client has sent. Returns its request once that is complete. A client that sends
    /// anything else is disconnected.
    pub(crate) fn read(&mut self, client: u32, flags: EventFlags) -> Option<ConnectRequest> {
        let known = self.clients.get(&client)?;
        let at_end = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let line = ConnectLine::read(&known.socket, at_end);
        if line == ConnectLine::Incomplete {
            return None;
        }
        let Client { guest, socket } = self.clients.remove(&client)?;
        if let Some(clients) = self.of_guests.get_mut(&guest) {
            clients.remove(&client);
        }
        let ConnectLine::Port(port) = line else { return None };
        Some(ConnectRequest { guest, port, socket: socket.try_clone().ok()? })
    }

    /// Closes the sockets of a removed guest.
    pub(crate) fn forget(&mut self, guest: GuestIdx) {
        self.close(guest);
        for client in self.of_guests.remove(&guest).unwrap_or_default() {
            self.clients.remove(&client);
        }
    }

    /// Duplicates of all clients' sockets, with their guests.
    pub(crate) fn clients(&self) -> Vec<(GuestIdx, OwnedFd)> {
        let clients = self.clients.values();
        clients
            .filter_map(|client| Some((client.guest, client.socket.as_fd().try_clone_to_owned().ok()?)))
            .collect()
    }
}

fn watch(guest: GuestIdx, socket: &Arc<ForeignFd>, events: &Epoll) -> io::Result<Watched<Arc<ForeignFd>>> {
    events.watch(Arc::clone(socket), EventSource::Listener(guest).token(), EventFlags::IN)
}
