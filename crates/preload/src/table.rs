//! The library's knowledge of the program's descriptors, by number. The table is a fixed array of
//! atomic words, so any thread can read it without locks or allocation, even in a signal handler
//! and between fork and exec.
//!
//! An entry is written before the program can use the number (before connect, listen or accept
//! return) or after it has given up the number (before the close). A correct program therefore
//! never reads a half-written entry. A program may close a descriptor without the library noticing,
//! by `fclose` or a system call of its own. Users of an entry therefore compare the socket's
//! cookie, which the kernel never reuses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Number of entries. Descriptors with greater numbers stay TCP.
pub(crate) const SLOTS: usize = 65_536;

const NOTHING: u32 = 0;
const CONNECTION: u32 = 1;
const LISTENER: u32 = 2;
const HIDDEN: u32 = 3;

/// A VMCI connection that replaced the program's TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    /// The socket's cookie (`SO_COOKIE`).
    pub(crate) cookie: u64,
    /// Address of the peer, as the program sees it.
    pub(crate) peer: SocketAddr,
    /// Local address; unspecified if the program has not asked for it yet.
    pub(crate) local: SocketAddr,
    /// True if the program has set `TCP_NODELAY`.
    pub(crate) no_delay: bool,
    /// True if the next connect asks for the result of a non-blocking one, which returned
    /// `EINPROGRESS`.
    pub(crate) unasked: bool,
}

/// A listening TCP socket of the program that the map names, and the VMCI socket beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The TCP socket's cookie (`SO_COOKIE`).
    pub(crate) cookie: u64,
    /// The VMCI socket, at a hidden number; `None` while another socket has its port.
    pub(crate) vmci: Option<RawFd>,
    /// Port of the VMCI socket.
    pub(crate) port: u32,
    /// Backlog that the program asked for.
    pub(crate) backlog: i32,
    /// True once the VMCI socket accepts connections.
    pub(crate) armed: bool,
    /// True if the program is known to have made the TCP socket non-blocking.
    pub(crate) non_blocking: bool,
    /// Time of the next attempt to get the port, in milliseconds of the monotonic clock.
    pub(crate) retry: u64,
}

/// Kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Not a descriptor of this library.
    Nothing,
    /// A VMCI connection.
    Connection(Connection),
    /// A listening TCP socket that the map names.
    Listener(Listener),
    /// A hidden descriptor of the library.
    Hidden,
}

/// The watch of an epoll instance on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watch {
    /// The epoll instance.
    pub(crate) epoll: RawFd,
    /// The watched events.
    pub(crate) events: u32,
    /// The data that the program gets with each event.
    pub(crate) data: u64,
}

#[derive(Debug)]
struct Slot {
    kind: AtomicU32,
    words: [AtomicU64; 8],
    /// Number of the instance plus one; 0 for none; negative for more than one.
    epoll: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
    /// 1 if another number is or was a duplicate of this one.
    duplicated: AtomicU32,
}

impl Slot {
    #[allow(clippy::declare_interior_mutable_const, reason = "copied into each slot of the static")]
    const EMPTY: Self = Self {
        kind: AtomicU32::new(NOTHING),
        words: [const { AtomicU64::new(0) }; 8],
        epoll: AtomicI32::new(0),
        events: AtomicU32::new(0),
        data: AtomicU64::new(0),
        duplicated: AtomicU32::new(0),
    };

    fn words(&self) -> [u64; 8] {
        self.words.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    fn set(&self, kind: u32, words: [u64; 8]) {
        for (slot, word) in self.words.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.kind.store(kind, Ordering::Release);
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    slots: [Slot; SLOTS],
    /// The greatest number that ever had an entry, plus one.
    end: AtomicU32,
    /// True once there has been a listener.
    listeners: AtomicBool,
}

impl Table {
    /// An empty table.
    #[allow(clippy::new_without_default, clippy::large_stack_arrays, reason = "made for a static")]
    pub(crate) const fn new() -> Self {
        Self {
            slots: [const { Slot::EMPTY }; SLOTS],
            end: AtomicU32::new(0),
            listeners: AtomicBool::new(false),
        }
    }

    fn slot(&self, fd: RawFd) -> Option<&Slot> {
        self.slots.get(usize::try_from(fd).ok()?)
    }

    /// Tells whether there is an entry. This is the fast path for descriptors of the program.
    pub(crate) fn is_held(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) != NOTHING)
    }

    /// Tells whether it is a hidden descriptor of the library.
    pub(crate) fn is_hidden(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) == HIDDEN)
    }

    /// Tells whether a descriptor may be a VMCI connection.
    pub(crate) fn may_be_connected(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) == CONNECTION)
    }

    /// Tells whether a descriptor may be a listener. Costs one load in a program without any.
    pub(crate) fn may_listen(&self, fd: RawFd) -> bool {
        self.listeners.load(Ordering::Relaxed)
            && self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) == LISTENER)
    }

    /// Records that two numbers are the same file.
    pub(crate) fn duplicated(&self, one: RawFd, other: RawFd) {
        for fd in [one, other] {
            if let Some(slot) = self.slot(fd) {
                slot.duplicated.store(1, Ordering::Relaxed);
                self.end.fetch_max((fd as u32).saturating_add(1), Ordering::Relaxed);
            }
        }
    }

    /// Tells whether a number has or had a duplicate.
    pub(crate) fn is_duplicated(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.duplicated.load(Ordering::Relaxed) != 0)
    }

    /// Tells whether anything is known about a number.
    pub(crate) fn is_known(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| {
            slot.kind.load(Ordering::Acquire) != NOTHING
                || slot.epoll.load(Ordering::Relaxed) != 0
                || slot.duplicated.load(Ordering::Relaxed) != 0
        })
    }

    /// Kind of a descriptor.
    pub(crate) fn get(&self, fd: RawFd) -> Held {
        let Some(slot) = self.slot(fd) else { return Held::Nothing };
        match slot.kind.load(Ordering::Acquire) {
            CONNECTION => {
                let [cookie, peer @ .., flags] = slot.words();
                let [p0, p1, p2, l0, l1, l2] = peer;
                Held::Connection(Connection {
                    cookie,
                    peer: address([p0, p1, p2]),
                    local: address([l0, l1, l2]),
                    no_delay: flags & 1 != 0,
                    unasked: flags & 2 != 0,
                })
            }
            LISTENER => {
                let [cookie, vmci, _turn, port, retry, ..] = slot.words();
                let (fd, flags) = ((vmci as u32).cast_signed(), vmci >> 32);
                Held::Listener(Listener {
                    cookie,
                    vmci: (fd >= 0).then_some(fd),
                    port: port as u32,
                    backlog: ((port >> 32) as u32).cast_signed(),
                    armed: flags & 1 != 0,
                    non_blocking: flags & 2 != 0,
                    retry,
                })
            }
            HIDDEN => Held::Hidden,
            _ => Held::Nothing,
        }
    }

    /// Sets an entry; [`Held::Nothing`] removes it. Returns false for a number beyond the table.
    pub(crate) fn set(&self, fd: RawFd, held: Held) -> bool {
        let Some(slot) = self.slot(fd) else { return false };
        match held {
            Held::Nothing => slot.kind.store(NOTHING, Ordering::Release),
            Held::Hidden => slot.set(HIDDEN, [0; 8]),
            Held::Connection(it) => {
                let [p0, p1, p2] = words(it.peer);
                let [l0, l1, l2] = words(it.local);
                let flags = u64::from(it.no_delay) | u64::from(it.unasked) << 1;
                slot.set(CONNECTION, [it.cookie, p0, p1, p2, l0, l1, l2, flags]);
            }
            Held::Listener(it) => {
                let flags = u64::from(it.armed) | u64::from(it.non_blocking) << 1;
                let vmci = u64::from(it.vmci.unwrap_or(-1) as u32) | flags << 32;
                let port = u64::from(it.port) | u64::from(it.backlog as u32) << 32;
                slot.set(LISTENER, [it.cookie, vmci, 0, port, it.retry, 0, 0, 0]);
                self.listeners.store(true, Ordering::Relaxed);
            }
        }
        self.end.fetch_max((fd as u32).saturating_add(1), Ordering::Relaxed);
        true
    }

    /// Counts the accepts of a listener, so that its two sockets take turns.
    pub(crate) fn turn(&self, fd: RawFd) -> u64 {
        let turn = self.slot(fd).and_then(|slot| slot.words.get(2));
        turn.map_or(0, |word| word.fetch_add(1, Ordering::Relaxed))
    }

    /// All numbers that may have an entry.
    pub(crate) fn numbers(&self) -> std::ops::Range<RawFd> {
        0..self.end.load(Ordering::Relaxed).cast_signed()
    }

    /// Removes everything about a number that is closed.
    pub(crate) fn forget(&self, fd: RawFd) {
        let Some(slot) = self.slot(fd) else { return };
        if slot.kind.load(Ordering::Relaxed) != NOTHING {
            slot.kind.store(NOTHING, Ordering::Release);
        }
        if slot.epoll.load(Ordering::Relaxed) != 0 {
            slot.epoll.store(0, Ordering::Relaxed);
        }
        if slot.duplicated.load(Ordering::Relaxed) != 0 {
            slot.duplicated.store(0, Ordering::Relaxed);
        }
    }

    /// Records that an epoll instance watches a descriptor.
    pub(crate) fn watched(&self, fd: RawFd, watch: Watch) {
        let Some(slot) = self.slot(fd) else { return };
        let number = watch.epoll.saturating_add(1);
        let before = slot.epoll.load(Ordering::Relaxed);
        slot.events.store(watch.events, Ordering::Relaxed);
        slot.data.store(watch.data, Ordering::Relaxed);
        slot.epoll.store(if before == 0 || before == number { number } else { -1 }, Ordering::Relaxed);
    }

    /// Records that an epoll instance no longer watches a descriptor.
    pub(crate) fn unwatched(&self, fd: RawFd, epoll: RawFd) {
        let Some(slot) = self.slot(fd) else { return };
        if slot.epoll.load(Ordering::Relaxed) == epoll.saturating_add(1) {
            slot.epoll.store(0, Ordering::Relaxed);
        }
    }

    /// The last known watch on a descriptor, if there is one. Fails if more than one instance
    /// watches it.
    pub(crate) fn watch(&self, fd: RawFd) -> Result<Option<Watch>, ManyWatches> {
        let Some(slot) = self.slot(fd) else { return Ok(None) };
        match slot.epoll.load(Ordering::Relaxed) {
            0 => Ok(None),
            number if number > 0 => Ok(Some(Watch {
                epoll: number - 1,
                events: slot.events.load(Ordering::Relaxed),
                data: slot.data.load(Ordering::Relaxed),
            })),
            _ => Err(ManyWatches),
        }
    }
}

/// Error: more than one epoll instance watches a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManyWatches;

fn words(address: SocketAddr) -> [u64; 3] {
    let (ip, four) = match address.ip() {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 1),
        IpAddr::V6(v6) => (v6, 0),
    };
    let bits = ip.to_bits();
    [(bits >> 64) as u64, bits as u64, u64::from(address.port()) | four << 16]
}

fn address([high, low, rest]: [u64; 3]) -> SocketAddr {
    let v6 = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    let ip = match v6.to_ipv4_mapped() {
        Some(v4) if rest >> 16 & 1 == 1 => IpAddr::V4(v4),
        _ => IpAddr::V6(v6),
    };
    SocketAddr::new(ip, rest as u16)
}

#[cfg(test)]
mod tests;
