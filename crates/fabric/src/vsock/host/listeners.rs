//! The listening sockets of guests on the host.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::SocketFlags;
use taut_api::fabric::ForeignFd;

use crate::sys::epoll::{Epoll, EventFlags, Watched, set_nonblocking};
use crate::vsock::guest::EventSource;
use crate::vsock::proto::GuestIdx;

/// Interval between looks at the sockets that are paused.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A socket at which clients connect to a guest.
#[derive(Debug)]
struct Listener {
    socket: Arc<ForeignFd>,
    /// `None` while the socket is paused.
    watched: Option<Watched<Arc<ForeignFd>>>,
}

/// All listening sockets.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    sockets: HashMap<GuestIdx, Listener>,
    /// Guests whose sockets accept nobody until the descriptors that clients have sent are closed.
    paused: Vec<GuestIdx>,
    /// Time of the next look at the paused sockets, if there are any.
    next_look: Option<Instant>,
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
    pub(super) fn close(&mut self, guest: GuestIdx) {
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
}

fn watch(guest: GuestIdx, socket: &Arc<ForeignFd>, events: &Epoll) -> io::Result<Watched<Arc<ForeignFd>>> {
    events.watch(Arc::clone(socket), EventSource::Listener(guest).token(), EventFlags::IN)
}
