//! The thread that carries the datagrams of one socket.
//!
//! Nothing is lost while both programs run and the receiver takes something at least once in
//! [`PATIENCE`]: a program that does not read fills its pair of sockets, then the carrier no longer
//! reads the streams to it, and the credit of these streams stops the other carriers. A carrier
//! that cannot send a datagram stops reading from its program. All of this is bounded.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, accept_with, getpeername, recv, sendmsg,
};

use super::peer::Peer;
use super::slots::{self, MOST_PEERS, Slot};
use super::{Address, HEADER, MAX_DATAGRAM};
use crate::hidden::unhide;
use crate::say::{complain, tell};
use crate::sys::{self, Name, at};

/// A peer that takes nothing for this long loses datagrams, so that others get theirs.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for which the end of the program waits for its carriers.
const EXIT: Duration = Duration::from_secs(1);
/// Longest time for which datagrams of a socket that was closed wait for their receivers.
const LAST: Duration = Duration::from_secs(2);
/// Most streams with one machine.
const MOST_OF_ONE: usize = 16;
/// Most datagrams that are taken from the program in a row.
const BURST: usize = 32;

/// Starts the carrier of a bound socket.
pub(super) fn start(slot: &'static Slot) -> Result<(), Errno> {
    let builder = std::thread::Builder::new().name("taut-vmci".into()).stack_size(256 << 10);
    // The handlers of the program run in the program's own threads.
    let _blocked = sys::Blocked::begin();
    let spawned = builder.spawn(move || Carrier::new(slot).run());
    spawned.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}

/// Prepares for forks and for the end of the process, once.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| sys::at_exit(drain));
}

/// True in a forked child that has sockets of its parent.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Runs in a forked child. The streams of the parent's carriers stay the parent's. A child that
/// uses a socket of its parent, for example a daemon that the parent started, gets a carrier for
/// it. If the parent uses it, too, each datagram goes to one of them.
pub(crate) extern "C" fn forked() {
    for slot in slots::all() {
        slot.take_streams().for_each(unhide);
        if slot.listener() >= 0 {
            slot.inherit();
            INHERITED.store(true, Relaxed);
        }
    }
}

/// Tells whether this process may have sockets of its parent without a carrier.
pub(crate) fn may_be_inherited() -> bool {
    INHERITED.load(Relaxed)
}

/// Starts the carrier of a socket of the parent, if that needs one.
pub(super) fn revive(slot: &'static Slot) {
    if slot.needs_carrier()
        && let Err(error) = start(slot)
    {
        complain!("the thread that carries datagrams cannot be started: {error}");
    }
}

/// Starts the carriers of all sockets of the parent, for a program that waits for some of them.
pub(crate) fn revive_all() {
    slots::all().for_each(revive);
}

/// Waits until the datagrams that the program has sent are with the kernel, for a second at most.
extern "C" fn drain() {
    let end = Instant::now() + EXIT;
    let waits = |slot: &Slot| {
        slot.listener() >= 0
            && !slot.is_inherited()
            && (is_ready(slot.far(), PollFlags::IN) || slot.is_busy())
    };
    while slots::all().any(waits) && Instant::now() < end {
        sleep(Duration::from_millis(1));
    }
}

fn is_ready(fd: RawFd, events: PollFlags) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Ok(socket) = at(fd) else { return false };
    let mut polled = [PollFd::from_borrowed_fd(socket, events)];
    poll(&mut polled, Some(&NOW)).is_ok_and(|count| count > 0)
}

/// Gives back what a socket has that was closed before it was bound.
pub(super) fn collect() {
    for slot in slots::all() {
        if slot.port().is_none() && is_ready(slot.far(), PollFlags::RDHUP) && slot.is_ours_to_release() {
            unhide(slot.far());
            slot.release();
        }
    }
}

/// The state of the thread.
struct Carrier {
    slot: &'static Slot,
    peers: Vec<Peer>,
    /// A datagram of the program that has no room at its peer.
    held: Option<(Address, Vec<u8>)>,
    /// The program does not read: its datagrams wait in the streams.
    is_full: bool,
    /// Datagrams that were lost.
    lost: u64,
    /// The program has closed its socket at this time.
    ended: Option<Instant>,
    room: Vec<u8>,
}

impl Carrier {
    fn new(slot: &'static Slot) -> Self {
        Self {
            slot,
            peers: Vec::new(),
            held: None,
            is_full: false,
            lost: 0,
            ended: None,
            room: vec![0; Peer::ROOM],
        }
    }

    fn run(mut self) {
        while !self.is_over() {
            if let Err(error) = self.turn() {
                tell!("datagrams: the carrier ends: {error}");
                break;
            }
        }
        let lost = self.lost;
        self.peers.clear();
        unhide(self.slot.listener());
        unhide(self.slot.far());
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

    /// Waits for something to do, and does it.
    fn turn(&mut self) -> Result<(), Errno> {
        let wanted = self.wait()?;
        let now = Instant::now();
        for (fd, _) in wanted.iter().skip(2).filter(|(_, events)| !events.is_empty()) {
            let index = self.peers.iter().position(|peer| peer.fd() == *fd);
            if let Some(index) = index
                && self.serve(index, now).is_err()
            {
                self.forget(index);
            }
        }
        let [program, listener] = [wanted[0].1, wanted[1].1];
        if !program.is_empty() && self.is_full {
            self.is_full = false;
            self.deliver_all();
        }
        if !listener.is_empty() {
            self.accept(now);
        }
        if let Some((to, datagram)) = self.held.take() {
            self.carry(to, datagram, now);
        }
        if program.intersects(PollFlags::IN | PollFlags::HUP) && self.held.is_none() && self.ended.is_none() {
            self.take(now)?;
        }
        self.flush_all(now);
        self.slot.set_busy(self.held.is_some() || self.peers.iter().any(Peer::has_waiting));
        Ok(())
    }

    /// Waits, and returns the descriptors with their events: the program's, the listener, and the
    /// peers in order.
    fn wait(&self) -> Result<Vec<(RawFd, PollFlags)>, Errno> {
        let mut program = PollFlags::empty();
        program.set(PollFlags::IN, self.held.is_none() && self.ended.is_none());
        program.set(PollFlags::OUT, self.is_full && self.ended.is_none());
        // A socket that was closed has events that nobody asks for.
        let far = if program.is_empty() { -1 } else { self.slot.far() };
        let mut wanted = vec![(far, program), (self.slot.listener(), PollFlags::IN)];
        wanted.extend(self.peers.iter().map(|peer| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, !self.is_full && !peer.is_connecting && !peer.is_over);
            events.set(PollFlags::OUT, peer.is_connecting || peer.has_waiting());
            (if events.is_empty() { -1 } else { peer.fd() }, events)
        }));
        let listener = at(self.slot.listener())?;
        let mut polled: Vec<PollFd<'_>> = wanted
            .iter()
            // A descriptor without events is not watched; the listener stands in for it.
            .map(|(fd, events)| match at(*fd) {
                Ok(fd) => PollFd::from_borrowed_fd(fd, *events),
                Err(_) => PollFd::from_borrowed_fd(listener, PollFlags::empty()),
            })
            .collect();
        let patient = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let is_limited = self.held.is_some() || self.ended.is_some();
        match poll(&mut polled, is_limited.then_some(&patient)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let events = wanted.into_iter().zip(&polled);
        Ok(events
            .map(|((fd, _), polled)| (fd, if fd < 0 { PollFlags::empty() } else { polled.revents() }))
            .collect())
    }

    /// Takes datagrams of the program.
    fn take(&mut self, now: Instant) -> Result<(), Errno> {
        for _ in 0..BURST {
            // Before the datagram leaves the pair, where `drain` sees it.
            self.slot.set_busy(true);
            let mut room = std::mem::take(&mut self.room);
            let received =
                recv(at(self.slot.far())?, &mut room[..HEADER + MAX_DATAGRAM], RecvFlags::DONTWAIT);
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
        let known = self.peers.iter().position(|peer| peer.address() == Some(to));
        let Some(index) = known.or_else(|| self.dial(to, now)) else {
            self.lost += 1;
            return;
        };
        let peer = &mut self.peers[index];
        if peer.push(&datagram, now) {
            return;
        }
        if peer.flush(now).is_err() {
            self.forget(index);
            self.lost += 1;
        } else if !peer.push(&datagram, now) {
            if now.duration_since(peer.moved) < PATIENCE {
                self.held = Some((to, datagram));
            } else {
                self.lost += 1;
            }
        }
    }

    /// Sends what waits for peers, together for all datagrams of a turn.
    fn flush_all(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.has_waiting() && !peer.is_connecting && peer.flush(now).is_err() {
                self.forget(index);
            } else {
                index += 1;
            }
        }
    }

    fn dial(&mut self, to: Address, now: Instant) -> Option<usize> {
        self.make_room(to.cid);
        let peer = Peer::dial(self.slot, to, now).inspect_err(|error| {
            tell!("datagram to cid {} port {}: lost: {error}", to.cid, to.port);
        });
        self.peers.push(peer.ok()?);
        Some(self.peers.len() - 1)
    }

    fn accept(&mut self, now: Instant) {
        const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
        let Ok(listener) = at(self.slot.listener()) else { return };
        while let Ok(socket) = accept_with(listener, FLAGS) {
            let Ok(Some(Name::Vsock(from))) = getpeername(&socket).map(|name| name.map(Name::from)) else {
                continue;
            };
            self.make_room(from.cid);
            if let Ok(peer) = Peer::accepted(self.slot, &socket, from.cid, now) {
                self.peers.push(peer);
            }
        }
    }

    /// Ends the stream that was used the longest time ago, if there are too many. A machine ends
    /// only its own.
    fn make_room(&mut self, cid: u32) {
        let oldest = |peers: &[Peer], of_one: bool| {
            let candidates = peers.iter().enumerate().filter(|(_, peer)| !of_one || peer.cid == cid);
            candidates.min_by_key(|(_, peer)| peer.used).map(|(index, _)| index)
        };
        let own = self.peers.iter().filter(|peer| peer.cid == cid).count();
        let index = if own >= MOST_OF_ONE {
            oldest(&self.peers, true)
        } else if self.peers.len() >= MOST_PEERS {
            oldest(&self.peers, false)
        } else {
            None
        };
        if let Some(index) = index {
            self.forget(index);
        }
    }

    /// Ends a stream. The others keep their order: of two streams with one address, which two
    /// carriers make that dial each other at once, each carrier uses the first one.
    fn forget(&mut self, index: usize) {
        self.lost += self.peers.remove(index).waiting;
    }

    /// Serves a peer that has events.
    fn serve(&mut self, index: usize, now: Instant) -> Result<(), Errno> {
        let Self { peers, room, .. } = self;
        let peer = &mut peers[index];
        peer.connected()?;
        if peer.flush(now).is_err() {
            // What it has sent before is still to be received.
            self.lost += peer.give_up();
        }
        if self.is_full {
            return Ok(());
        }
        peer.is_over |= peer.fill(room, now).is_err();
        self.deliver(index)
    }

    fn deliver_all(&mut self) {
        let mut index = 0;
        while index < self.peers.len() {
            if self.deliver(index).is_err() {
                self.forget(index);
            } else {
                index += 1;
            }
        }
    }

    /// Passes received datagrams to the program, as long as it has room. An error means that the
    /// stream is over, and all that came before is delivered.
    fn deliver(&mut self, index: usize) -> Result<(), Errno> {
        let peer = &mut self.peers[index];
        let Some(from) = peer.address() else {
            return if peer.is_over { Err(Errno::CONNRESET) } else { Ok(()) };
        };
        let wanted = self.slot.peer().is_none_or(|wanted| wanted == from);
        while !self.is_full
            && let Some(datagram) = peer.inbox.first()?
        {
            let len = datagram.len();
            if wanted && self.ended.is_none() {
                let header = from.to_bytes();
                let parts = [IoSlice::new(&header), IoSlice::new(datagram)];
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match sendmsg(at(self.slot.far())?, &parts, &mut SendAncillaryBuffer::default(), flags) {
                    Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                        self.is_full = true;
                        return Ok(());
                    }
                    Err(Errno::INTR) => continue,
                    // The program's socket is closed, which the next look at it finds.
                    Ok(_) | Err(_) => {}
                }
            }
            peer.inbox.remove(len);
        }
        if peer.is_over && !self.is_full { Err(Errno::CONNRESET) } else { Ok(()) }
    }
}
