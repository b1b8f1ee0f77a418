//! Clients on the host that have not named the guest's port yet.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use taut_api::fabric::ForeignFd;

use super::connect_line::ConnectLine;
use crate::sys::epoll::{Epoll, EventFlags, Watched};
use crate::vsock::guest::EventSource;
use crate::vsock::proto::GuestIdx;

/// Clients of one guest that may wait to name their port.
const MAX_CLIENTS: usize = 64;
/// Time within which a client must name its port.
pub(crate) const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that has not named its port.
#[derive(Debug)]
struct Client {
    guest: GuestIdx,
    socket: Watched<ForeignFd>,
    deadline: Instant,
}

/// A client that wants to connect to a port of a guest.
#[derive(Debug)]
pub(crate) struct ConnectRequest {
    pub(crate) guest: GuestIdx,
    pub(crate) port: u32,
    pub(crate) socket: ForeignFd,
}

/// All clients that have not named their port.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// The clients by their numbers.
    all: HashMap<u32, Client>,
    /// Numbers of the clients of each guest.
    of_guests: HashMap<GuestIdx, HashSet<u32>>,
    /// Deadlines of the clients, with their numbers.
    deadlines: BTreeSet<(Instant, u32)>,
    /// Number of the newest client.
    newest: u32,
}

impl Clients {
    /// Tells whether a guest has as many clients as may wait.
    pub(crate) fn is_full(&self, guest: GuestIdx) -> bool {
        self.of_guests.get(&guest).is_some_and(|clients| clients.len() >= MAX_CLIENTS)
    }

    /// Adds a client, and returns its number.
    pub(crate) fn add(
        &mut self,
        guest: GuestIdx,
        socket: ForeignFd,
        events: &Epoll,
        now: Instant,
    ) -> io::Result<u32> {
        self.newest = self.newest.wrapping_add(1);
        let (number, deadline) = (self.newest, now + CLIENT_TIMEOUT);
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let socket = events.watch(socket, EventSource::Client(number).token(), flags)?;
        self.all.insert(number, Client { guest, socket, deadline });
        self.of_guests.entry(guest).or_default().insert(number);
        self.deadlines.insert((deadline, number));
        Ok(number)
    }

    /// Reads what a client has sent. Returns its request once that is complete. A client that sends
    /// anything else is disconnected.
    pub(crate) fn read(&mut self, number: u32, flags: EventFlags) -> Option<ConnectRequest> {
        let known = self.all.get(&number)?;
        let at_end = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        let line = ConnectLine::read(&known.socket, at_end);
        if line == ConnectLine::Incomplete {
            return None;
        }
        let Client { guest, socket, .. } = self.remove(number)?;
        let ConnectLine::Port(port) = line else { return None };
        Some(ConnectRequest { guest, port, socket: socket.try_clone().ok()? })
    }

    /// The earliest deadline of a client, if there are any.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Disconnects a client whose deadline has passed, and returns its guest.
    pub(crate) fn remove_late(&mut self, now: Instant) -> Option<GuestIdx> {
        let &(deadline, number) = self.deadlines.first()?;
        if now < deadline {
            return None;
        }
        self.remove(number).map(|client| client.guest)
    }

    /// Disconnects the clients of a removed guest.
    pub(super) fn forget(&mut self, guest: GuestIdx) {
        for number in self.of_guests.remove(&guest).unwrap_or_default() {
            self.remove(number);
        }
    }

    /// Duplicates of all clients' sockets, with their guests.
    pub(crate) fn duplicates(&self) -> Vec<(GuestIdx, OwnedFd)> {
        let clients = self.all.values();
        clients
            .filter_map(|client| Some((client.guest, client.socket.as_fd().try_clone_to_owned().ok()?)))
            .collect()
    }

    /// Removes a client from all lists.
    fn remove(&mut self, number: u32) -> Option<Client> {
        let client = self.all.remove(&number)?;
        self.deadlines.remove(&(client.deadline, number));
        if let Some(clients) = self.of_guests.get_mut(&client.guest) {
            clients.remove(&number);
        }
        Some(client)
    }
}
