//! The process's loop.
//!
//! A turn handles at most eight events. A turn that moved bytes takes at least a millisecond, so
//! the process wakes up at most a thousand times a second, however many small pieces arrive.

mod requests;
mod station;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{SocketFlags, accept_with};

use crate::control::message::SourceId;
use crate::epoll::{Epoll, EventFlags, Watched};
use station::{Station, set_nonblocking};

/// Shortest time of a turn that moved bytes.
const TURN: Duration = Duration::from_millis(1);
/// Maximum number of connections of `tautd`.
const MOST_CALLERS: usize = 8;
/// Maximum number of bytes that one call reads.
const CHUNK: usize = 64 << 10;
/// Time after which a process ends that nobody knows: it has neither sources nor a connection.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// Token of the socket on which `tautd` is awaited.
const LISTENER: u64 = 0;

/// The loop and everything that it serves.
#[derive(Debug)]
pub struct Engine {
    epoll: Epoll,
    listener: Watched,
    /// Roles of the descriptors in the set, by their tokens. A token is never used again.
    roles: BTreeMap<u64, Role>,
    next_token: u64,
    /// Connections of `tautd`, by their tokens.
    callers: BTreeMap<u64, Watched>,
    /// Sources by the tokens of their ports.
    stations: BTreeMap<u64, Station>,
    names: BTreeMap<SourceId, u64>,
    /// Stations that have something to do at a certain time.
    attentive: BTreeSet<u64>,
    buffer: Vec<u8>,
    /// Time at which the last connection or source went.
    alone_since: Instant,
    quits: bool,
}

/// The use of a descriptor. A station is named by the token of its port.
#[derive(Debug, Clone, Copy)]
enum Role {
    Listener,
    Caller,
    Port,
    Door { station: u64 },
    Person { station: u64 },
}

impl Engine {
    /// Creates the loop; [`Engine::run`] runs it. `listener` is the socket on which `tautd` is
    /// awaited.
    ///
    /// # Errors
    /// When the kernel has no room for the set.
    pub fn new(listener: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&listener)?;
        let epoll = Epoll::new()?;
        let listener = epoll.watch(listener, LISTENER, EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            roles: BTreeMap::from([(LISTENER, Role::Listener)]),
            next_token: LISTENER + 1,
            callers: BTreeMap::new(),
            stations: BTreeMap::new(),
            names: BTreeMap::new(),
            attentive: BTreeSet::new(),
            buffer: vec![0; CHUNK],
            alone_since: Instant::now(),
            quits: false,
        })
    }

    /// Runs until `tautd` asks the process to end, or nobody knows it.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(mut self) -> io::Result<()> {
        while !self.quits && !self.is_forgotten() {
            let ready = self.epoll.wait(self.timeout())?;
            let begun = Instant::now();
            let mut moved = false;
            for (token, flags) in ready {
                moved |= self.on_event(token, flags, begun);
            }
            self.on_time(begun);
            if moved {
                std::thread::sleep(TURN.saturating_sub(begun.elapsed()));
            }
        }
        Ok(())
    }

    /// Handles an event. Returns whether it may have moved bytes of a source.
    fn on_event(&mut self, token: u64, flags: EventFlags, now: Instant) -> bool {
        // A descriptor may have gone in the same turn.
        let Some(role) = self.roles.get(&token).copied() else { return false };
        let station = match role {
            Role::Listener => {
                self.accept_caller();
                return false;
            }
            Role::Caller => {
                self.on_caller(token, now);
                return false;
            }
            Role::Port => token,
            Role::Door { station } | Role::Person { station } => station,
        };
        let Some(found) = self.stations.get_mut(&station) else { return false };
        match role {
            Role::Door { .. } => {
                let token = self.next_token;
                if found.accept(&self.epoll, token, now) {
                    self.next_token += 1;
                    self.roles.insert(token, Role::Person { station });
                }
            }
            Role::Person { .. } => found.on_person(token, flags, &mut self.buffer, now),
            Role::Port | Role::Listener | Role::Caller => found.on_port(flags, &mut self.buffer, now),
        }
        self.look_after(station, now);
        true
    }

    /// Forgets what has gone at a station, and notes whether it has something to do later.
    fn look_after(&mut self, station: u64, now: Instant) {
        let Some(found) = self.stations.get_mut(&station) else { return };
        for person in found.take_gone() {
            self.roles.remove(&person);
        }
        if found.has_ended() {
            self.forget(station, now);
        } else if found.due().is_some() {
            self.attentive.insert(station);
        } else {
            self.attentive.remove(&station);
        }
    }

    /// Writes what a station still has, and removes it.
    fn forget(&mut self, station: u64, now: Instant) {
        let Some(mut gone) = self.stations.remove(&station) else { return };
        gone.flush(&mut self.buffer, now);
        self.names.remove(gone.id());
        self.attentive.remove(&station);
        self.roles.retain(|token, role| match role {
            Role::Port => *token != station,
            Role::Door { station: of } | Role::Person { station: of } => *of != station,
            Role::Listener | Role::Caller => true,
        });
        self.alone_since = now;
    }

    /// Lets each station do what is due.
    fn on_time(&mut self, now: Instant) {
        for station in self.attentive.clone() {
            let Some(found) = self.stations.get_mut(&station) else { continue };
            if found.due().is_some_and(|due| due <= now) {
                found.settle(now);
                self.look_after(station, now);
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let due = self.attentive.iter().filter_map(|station| self.stations.get(station)?.due()).min();
        let forgotten = self.is_alone().then(|| self.alone_since + FORGOTTEN);
        let next = due.into_iter().chain(forgotten).min()?;
        Some(next.saturating_duration_since(now))
    }

    fn is_alone(&self) -> bool {
        self.stations.is_empty() && self.callers.is_empty()
    }

    fn is_forgotten(&self) -> bool {
        self.is_alone() && self.alone_since.elapsed() >= FORGOTTEN
    }

    fn accept_caller(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.listener, flags) else { return };
        if self.callers.len() >= MOST_CALLERS {
            return;
        }
        let token = self.next_token;
        // Without room in the set the connection is closed, and tautd tries again.
        let Ok(socket) = self.epoll.watch(socket, token, EventFlags::IN) else { return };
        self.next_token += 1;
        self.roles.insert(token, Role::Caller);
        self.callers.insert(token, socket);
    }

    fn drop_caller(&mut self, token: u64, now: Instant) {
        self.callers.remove(&token);
        self.roles.remove(&token);
        self.alone_since = now;
    }
}
