//! A source with its descriptors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

use crate::client::{MOST_CLIENTS, Outbox, Wants};
use crate::control::message::SourceId;
use crate::epoll::{Epoll, EventFlags, Watched};
use crate::source::Source;

/// Maximum number of bytes that are read of one person's input at once, so that others have their
/// turn.
const INPUT_AT_ONCE: usize = 512;
/// Maximum number of reads of one flush: more than the largest pipe holds.
const MOST_READS: usize = 32;
/// A peer that has gone is an error, not a signal.
const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// A source and its descriptors.
#[derive(Debug)]
pub(super) struct Station {
    id: SourceId,
    source: Source<File>,
    /// The FIFO, or the connection to the serial port.
    port: Watched,
    /// The socket on which people are awaited; only a console has one.
    door: Option<Watched>,
    /// Their connections, by their tokens.
    people: BTreeMap<u64, Person>,
    /// False while nobody's input is read, because the guest has to take some first.
    reads_input: bool,
    /// Tokens of people who have gone.
    gone: Vec<u64>,
    ended: bool,
}

/// Someone at a console.
#[derive(Debug)]
struct Person {
    socket: Watched,
    /// False once the person has sent the end of the input.
    types: bool,
}

impl Station {
    pub(super) fn new(id: SourceId, port: Watched, door: Option<Watched>, source: Source<File>) -> Self {
        let (people, gone) = (BTreeMap::new(), Vec::new());
        Self { id, source, port, door, people, reads_input: true, gone, ended: false }
    }

    pub(super) fn id(&self) -> &SourceId {
        &self.id
    }

    /// Returns whether the other end of the port has closed it.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the tokens of people who have gone since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.gone)
    }

    /// Returns the time at which [`Self::settle`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let discards = self.source.input.discards_from().filter(|_| !self.reads_input);
        self.source.due().into_iter().chain(discards).min()
    }

    /// Does what is due.
    pub(super) fn settle(&mut self, now: Instant) {
        self.source.settle(now);
        let is_stuck = |outbox: &Outbox| outbox.stuck_at().is_some_and(|at| at <= now);
        let clients = &self.source.clients;
        let stuck: Vec<u64> =
            clients.iter().filter(|(_, outbox)| is_stuck(outbox)).map(|(&token, _)| token).collect();
        for token in stuck {
            self.part(token);
        }
        self.hand_out(now);
    }

    /// Handles an event of the port.
    pub(super) fn on_port(&mut self, flags: EventFlags, buffer: &mut [u8], now: Instant) {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read(buffer, now);
        }
        self.pass_input();
        self.hand_out(now);
    }

    /// Reads everything that is there, and writes it and what is in memory.
    pub(super) fn flush(&mut self, buffer: &mut [u8], now: Instant) {
        for _ in 0..MOST_READS {
            if !self.read(buffer, now) {
                break;
            }
        }
        self.source.finish(now);
        self.hand_out(now);
    }

    /// Lets someone in. Returns false if nobody came, or there is no room.
    pub(super) fn accept(&mut self, epoll: &Epoll, token: u64, now: Instant) -> bool {
        let Some(door) = &self.door else { return false };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(door, flags) else { return false };
        if self.people.len() >= MOST_CLIENTS {
            let why = format!("[taut: {MOST_CLIENTS} others are connected to this console]\r\n");
            // The connection is closed anyway.
            let _ = send(&socket, why.as_bytes(), SEND);
            return false;
        }
        let Ok(socket) = epoll.watch(socket, token, EventFlags::empty()) else { return false };
        self.people.insert(token, Person { socket, types: true });
        self.source.clients.insert(token, Outbox::new(now));
        self.watch_people(now);
        true
    }

    /// Handles an event of someone's connection.
    pub(super) fn on_person(&mut self, token: u64, flags: EventFlags, buffer: &mut [u8], now: Instant) {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            if self.people.get(&token).is_some_and(|person| person.types) {
                // Input that was typed before the client left waits for the guest, too.
                self.read_input(token, buffer, now);
                self.pass_input();
            } else {
                self.part(token);
            }
        }
        self.hand_out(now);
    }

    /// Reads once. Returns whether there was something.
    fn read(&mut self, buffer: &mut [u8], now: Instant) -> bool {
        let read = match &self.door {
            None => rustix::io::read(&self.port, &mut *buffer),
            Some(_) => recv(&self.port, &mut *buffer, RecvFlags::DONTWAIT).map(|(n, _)| n),
        };
        match read {
            Ok(n @ 1..) => self.source.take(&buffer[..n], now),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => self.ended = true,
        }
        matches!(read, Ok(1..))
    }

    /// Reads what someone has typed, as much as is wanted.
    fn read_input(&mut self, token: u64, buffer: &mut [u8], now: Instant) {
        let Some(person) = self.people.get_mut(&token) else { return };
        let (room, is_passed_on) = match self.source.input.wants(now) {
            Wants::Bytes(room) => (room.min(INPUT_AT_ONCE), true),
            Wants::Discard => (buffer.len(), false),
            Wants::Nothing => return,
        };
        match recv(&person.socket, &mut buffer[..room], RecvFlags::DONTWAIT) {
            Ok((0, _)) => person.types = false,
            Ok((n, _)) if is_passed_on => self.source.input.push(&buffer[..n], now),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.part(token),
        }
    }

    /// Gives the guest as much input as it takes.
    fn pass_input(&mut self) {
        while !self.source.input.front().is_empty() {
            match send(&self.port, self.source.input.front(), SEND) {
                Ok(n) => self.source.input.taken(n),
                // The end of the port shows when it is read.
                Err(_) => break,
            }
        }
    }

    /// Gives each person as much output as they take.
    fn hand_out(&mut self, now: Instant) {
        let mut broken = Vec::new();
        for (token, person) in &self.people {
            let Some(outbox) = self.source.clients.get_mut(token) else { continue };
            while !outbox.front().is_empty() {
                match send(&person.socket, outbox.front(), SEND) {
                    Ok(n) => outbox.taken(n, now),
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(_) => {
                        broken.push(*token);
                        break;
                    }
                }
            }
        }
        for token in broken {
            self.part(token);
        }
        self.watch_people(now);
    }

    /// Waits for what can be done next.
    fn watch_people(&mut self, now: Instant) {
        self.reads_input = self.source.input.wants(now) != Wants::Nothing;
        for (token, person) in &mut self.people {
            let outbox = self.source.clients.get(token);
            let waits = outbox.is_some_and(|outbox| !outbox.front().is_empty());
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, person.types && self.reads_input);
            flags.set(EventFlags::OUT, waits);
            person.socket.want(flags);
        }
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, !self.source.input.front().is_empty());
        self.port.want(flags);
    }

    /// Disconnects someone.
    fn part(&mut self, token: u64) {
        self.people.remove(&token);
        self.source.clients.remove(&token);
        self.gone.push(token);
    }
}

/// Makes a descriptor non-blocking.
pub(super) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}
