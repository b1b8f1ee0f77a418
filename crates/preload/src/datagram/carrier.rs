//! The thread that carries the datagrams of one socket.
//!
//! Nothing is lost while both programs run and the receiver takes something at least once in
//! [`PATIENCE`]: a program that does not read fills its pair of sockets, then the carrier reads
//! each stream to it only until there is a datagram, and the credit of these streams stops the
//! other carriers. A carrier that cannot send a datagram stops reading from its program. All of
//! this is bounded.
//!
//! - `delivery`: passes what peers have sent to the program.
//! - `streams`: opens, accepts and ends streams.

mod delivery;
mod streams;
#[cfg(test)]
mod tests;

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::peer::Peer;
use super::slots::Slot;
use super::{Address, HEADER, MAX_DATAGRAM};
use crate::hidden::{is_there, unhide};
use crate::say::tell;
use crate::sys::at;

/// A peer that takes nothing for this long loses datagrams, so that others get theirs.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for which datagrams of a socket that was closed wait for their receivers.
const LAST: Duration = Duration::from_secs(2);
/// Time between two attempts at something of which no event tells when it succeeds.
const RETRY: Duration = Duration::from_millis(50);
/// Most datagrams that are taken from the program in a row.
const BURST: usize = 32;

/// The state of the thread.
pub(super) struct Carrier {
    slot: &'static Slot,
    peers: Vec<Peer>,
    /// Index of the peer that is served first. The next one is first when a peer has filled the
    /// program's queue, so that no peer keeps the others out.
    first: usize,
    /// A datagram of the program that has no room at its peer.
    held: Option<(Address, Vec<u8>)>,
    /// The program does not read: its datagrams wait in the streams.
    is_full: bool,
    /// Datagrams that were lost.
    lost: u64,
    /// The program has closed its socket at this time.
    ended: Option<Instant>,
    /// No streams are accepted before this time, because accepting has failed.
    accepts_from: Option<Instant>,
    room: Vec<u8>,
}

/// The descriptors that have events, with these.
struct Events(Vec<(RawFd, PollFlags)>);

impl Events {
    fn of(&self, fd: RawFd) -> PollFlags {
        let found = self.0.iter().find(|(at, _)| *at == fd);
        found.map_or(PollFlags::empty(), |(_, events)| *events)
    }
}

impl Carrier {
    pub(super) fn new(slot: &'static Slot) -> Self {
        Self {
            slot,
            peers: Vec::new(),
            first: 0,
            held: None,
            is_full: false,
            lost: 0,
            ended: None,
            accepts_from: None,
            room: vec![0; Peer::ROOM],
        }
    }

    pub(super) fn run(mut self) {
        while !self.is_over() {
            if let Err(error) = self.run_once() {
                tell!("datagrams: the carrier ends: {error}");
                break;
            }
        }
        let waiting: u64 = self.peers.iter().map(|peer| peer.waiting).sum();
        let lost = self.lost + waiting + u64::from(self.held.is_some());
        self.peers.clear();
        unhide(self.slot.listener());
        unhide(self.slot.carrier_end());
        self.slot.set_busy(false);
        self.slot.release();
        if lost > 0 {
            tell!("datagrams: {lost} were lost, because their receivers took none or were gone");
        }
    }

    /// Tells whether the program has closed its socket, and all that it sent is sent or late.
    fn is_over(&self) -> bool {
        let waits = self.held.is_some() || self.peers.iter().any(Peer::has_waiting);
        self.ended.is_some_and(|ended| !waits || ended.elapsed() > LAST)
    }

    /// Polls all descriptors once and handles their events.
    fn run_once(&mut self) -> Result<(), Errno> {
        let events = self.wait()?;
        let now = Instant::now();
        self.check_descriptors()?;
        if self.is_full {
            self.is_full = false;
            self.deliver_all();
        }
        self.serve_all(&events, now);
        if !events.of(self.slot.listener()).is_empty() {
            self.accept(now);
        }
        if let Some((to, datagram)) = self.held.take() {
            self.carry(to, datagram, now);
        }
        let program = events.of(self.slot.carrier_end());
        if program.intersects(PollFlags::IN | PollFlags::HUP) && self.held.is_none() && self.ended.is_none() {
            self.take(now)?;
        }
        self.flush_all(now);
        self.slot.set_busy(self.held.is_some() || self.peers.iter().any(Peer::has_waiting));
        Ok(())
    }

    /// Waits until a descriptor has events, or until something is to be tried again.
    fn wait(&self) -> Result<Events, Errno> {
        let is_paused = self.accepts_from.is_some_and(|from| Instant::now() < from);
        let mut wanted = Vec::with_capacity(self.peers.len() + 2);
        let mut program = PollFlags::empty();
        program.set(PollFlags::IN, self.held.is_none() && self.ended.is_none());
        program.set(PollFlags::OUT, self.is_full && self.ended.is_none());
        wanted.push((self.slot.carrier_end(), program));
        if !is_paused {
            wanted.push((self.slot.listener(), PollFlags::IN));
        }
        wanted.extend(self.peers.iter().map(|peer| (peer.fd(), peer.wanted(self.is_full))));
        // A socket that was closed has events that nobody asks for.
        wanted.retain(|(_, events)| !events.is_empty());
        let polled = wanted.iter().map(|(fd, events)| Ok(PollFd::from_borrowed_fd(at(*fd)?, *events)));
        let mut polled = polled.collect::<Result<Vec<_>, Errno>>()?;
        let retry = Timespec { tv_sec: 0, tv_nsec: RETRY.subsec_nanos().into() };
        // A Unix socket is writable if most of its buffer is free. It has room before that.
        let is_limited = self.held.is_some() || self.ended.is_some() || self.is_full || is_paused;
        match poll(&mut polled, is_limited.then_some(&retry)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let events = wanted.iter().zip(&polled).map(|((fd, _), polled)| (*fd, polled.revents()));
        Ok(Events(events.filter(|(_, events)| !events.is_empty()).collect()))
    }

    /// Forgets the descriptors that the program has closed by a system call of its own. Fails if
    /// the carrier cannot go on without one.
    fn check_descriptors(&mut self) -> Result<(), Errno> {
        if !is_there(self.slot.carrier_end()) || !is_there(self.slot.listener()) {
            return Err(Errno::BADF);
        }
        while let Some(index) = self.peers.iter().position(|peer| !is_there(peer.fd())) {
            self.forget(index);
        }
        Ok(())
    }

    /// Takes datagrams of the program.
    fn take(&mut self, now: Instant) -> Result<(), Errno> {
        for _ in 0..BURST {
            // Before the datagram leaves the pair, where `drain` sees it.
            self.slot.set_busy(true);
            let mut room = std::mem::take(&mut self.room);
            let carrier_end = at(self.slot.carrier_end())?;
            let received = recv(carrier_end, &mut room[..HEADER + MAX_DATAGRAM], RecvFlags::DONTWAIT);
            let taken = match received {
                Ok((_, count)) => Ok(room.get(..count).and_then(|bytes| {
                    let (to, datagram) = bytes.split_first_chunk::<HEADER>()?;
                    Some((Address::from_bytes(*to), datagram.to_vec()))
                })),
                Err(error) => Err(error),
            };
            self.room = room;
            match taken {
                Ok(Some((to, datagram))) => self.carry(to, datagram, now),
                // Messages have an address, so this is the end.
                Ok(None) => {
                    self.ended = Some(now);
                    return Ok(());
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.held.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Gives a datagram to the peer with this address. If that has no room, holds or loses it.
    fn carry(&mut self, to: Address, datagram: Vec<u8>, now: Instant) {
        let is_known = |peer: &Peer| peer.address() == Some(to) && !peer.takes_none;
        let known = self.peers.iter().position(is_known);
        let Some(index) = known.or_else(|| self.dial(to, now)) else {
            self.lost += 1;
            return;
        };
        let peer = &mut self.peers[index];
        if peer.push(&datagram, now) {
            return;
        }
        if peer.flush(now).is_err() {
            self.lost += peer.give_up() + 1;
        } else if !peer.push(&datagram, now) {
            if now.duration_since(peer.last_progress) < PATIENCE {
                self.held = Some((to, datagram));
            } else {
                self.lost += 1;
            }
        }
    }

    /// Sends what waits for peers, together for all datagrams of a turn.
    fn flush_all(&mut self, now: Instant) {
        for peer in &mut self.peers {
            if peer.flush(now).is_err() {
                // Datagrams that the peer has sent before are still to be received.
                self.lost += peer.give_up();
            }
        }
    }
}
