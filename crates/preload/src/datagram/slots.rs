//! The datagram sockets of this process: a fixed array of atomic words, which any thread can read
//! without locks, also in a forked child.

use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::Address;
use crate::sys::at;

/// Most datagram sockets of a process.
pub(crate) const MOST: usize = 64;
/// Most streams of a socket.
pub(super) const MOST_PEERS: usize = 64;
/// The port of a socket that is not bound.
const UNBOUND: u32 = u32::MAX;
/// A descriptor that is not open.
const NONE: RawFd = -1;

/// A datagram socket.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Cookie of the program's socket, which the kernel never reuses. It is 0 if the slot is free,
    /// and 1 while it is claimed.
    cookie: AtomicU64,
    port: AtomicU32,
    /// The address that the program has connected it to: context ID and port, 0 for none.
    peer: AtomicU64,
    /// The carrier's end of the pair.
    carrier_end: AtomicI32,
    listener: AtomicI32,
    /// The streams of the carrier, for a forked child to close.
    streams: [AtomicI32; MOST_PEERS],
    /// The carrier has datagrams that it has not handed over.
    busy: AtomicBool,
    /// The socket has a carrier in the parent of this process only.
    inherited: AtomicBool,
}

static SLOTS: [Slot; MOST] = [const { Slot::new() }; MOST];
/// True once there has been a datagram socket.
static ANY: AtomicBool = AtomicBool::new(false);

/// Returns the datagram socket that a descriptor is, if it is one.
pub(crate) fn find(fd: RawFd) -> Option<&'static Slot> {
    if !ANY.load(Relaxed) {
        return None;
    }
    let cookie = at(fd).and_then(sockopt::socket_cookie).ok()?;
    SLOTS.iter().find(|slot| slot.cookie.load(Acquire) == cookie)
}

/// All sockets that are in use.
pub(super) fn all() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().filter(|slot| slot.cookie.load(Acquire) > 1)
}

/// Tells whether a descriptor has one of these events now.
pub(super) fn is_ready(fd: RawFd, events: PollFlags) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Ok(socket) = at(fd) else { return false };
    let mut polled = [PollFd::from_borrowed_fd(socket, events)];
    poll(&mut polled, Some(&NOW)).is_ok_and(|count| count > 0)
}

/// Takes a slot for a new socket; `None` if all are in use.
pub(super) fn claim(cookie: u64, carrier_end: RawFd) -> Option<&'static Slot> {
    let slot = SLOTS.iter().find(|slot| slot.cookie.compare_exchange(0, 1, AcqRel, Relaxed).is_ok())?;
    slot.port.store(UNBOUND, Relaxed);
    slot.peer.store(0, Relaxed);
    slot.carrier_end.store(carrier_end, Relaxed);
    slot.listener.store(NONE, Relaxed);
    slot.busy.store(false, Relaxed);
    slot.inherited.store(false, Relaxed);
    slot.cookie.store(cookie, Release);
    ANY.store(true, Relaxed);
    Some(slot)
}

impl Slot {
    const fn new() -> Self {
        Self {
            cookie: AtomicU64::new(0),
            port: AtomicU32::new(UNBOUND),
            peer: AtomicU64::new(0),
            carrier_end: AtomicI32::new(NONE),
            listener: AtomicI32::new(NONE),
            streams: [const { AtomicI32::new(NONE) }; MOST_PEERS],
            busy: AtomicBool::new(false),
            inherited: AtomicBool::new(false),
        }
    }

    /// The port; `None` if the socket is not bound.
    pub(crate) fn port(&self) -> Option<u32> {
        Some(self.port.load(Acquire)).filter(|port| *port != UNBOUND)
    }

    /// Stores the port and its listener. Returns `false` if the socket is bound.
    pub(super) fn bind(&self, port: u32, listener: RawFd) -> bool {
        let bound = self.port.compare_exchange(UNBOUND, port, AcqRel, Relaxed).is_ok();
        if bound {
            self.listener.store(listener, Release);
        }
        bound
    }

    /// Makes the socket an unbound one again.
    pub(super) fn unbind(&self) {
        self.listener.store(NONE, Relaxed);
        self.port.store(UNBOUND, Release);
    }

    /// The address that the program has connected the socket to.
    pub(crate) fn peer(&self) -> Option<Address> {
        let peer = self.peer.load(Relaxed);
        (peer != 0).then_some(Address { cid: (peer >> 32) as u32, port: peer as u32 })
    }

    pub(super) fn set_peer(&self, to: Option<Address>) {
        let word = to.map_or(0, |to| u64::from(to.cid) << 32 | u64::from(to.port));
        self.peer.store(word, Relaxed);
    }

    /// The carrier's end of the pair.
    pub(super) fn carrier_end(&self) -> RawFd {
        self.carrier_end.load(Relaxed)
    }

    /// The socket at which other carriers connect.
    pub(super) fn listener(&self) -> RawFd {
        self.listener.load(Acquire)
    }

    /// Notes that the carrier has a stream.
    pub(super) fn add_stream(&self, fd: RawFd) {
        let _ = self.streams.iter().find(|at| at.compare_exchange(NONE, fd, AcqRel, Relaxed).is_ok());
    }

    /// Notes that the carrier has closed a stream.
    pub(super) fn remove_stream(&self, fd: RawFd) {
        let _ = self.streams.iter().find(|at| at.compare_exchange(fd, NONE, AcqRel, Relaxed).is_ok());
    }

    /// Takes the streams of the carrier.
    pub(super) fn take_streams(&self) -> impl Iterator<Item = RawFd> {
        self.streams.iter().map(|at| at.swap(NONE, AcqRel)).filter(|fd| *fd != NONE)
    }

    pub(super) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, SeqCst);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(SeqCst)
    }

    /// Notes in a forked child that the socket has no carrier there.
    pub(super) fn inherit(&self) {
        self.inherited.store(true, Relaxed);
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.inherited.load(Relaxed)
    }

    /// Tells whether the socket needs a carrier in this process. Only one caller is told so.
    pub(super) fn needs_carrier(&self) -> bool {
        self.is_inherited() && self.inherited.swap(false, AcqRel)
    }

    /// Takes a slot out of use, whose socket is gone. Only one caller is told to release it.
    pub(super) fn is_ours_to_release(&self) -> bool {
        let cookie = self.cookie.load(Acquire);
        cookie > 1 && self.cookie.compare_exchange(cookie, 1, AcqRel, Relaxed).is_ok()
    }

    /// Gives the slot back when the socket is gone.
    pub(super) fn release(&self) {
        self.cookie.store(0, Release);
    }
}
