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
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

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

/// A descriptor that accepts TCP and VMCI connections: an epoll instance with both listening
/// sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The program's TCP socket, at a hidden number.
    pub(crate) tcp: RawFd,
    /// The VMCI socket; `None` after `shutdown`.
    pub(crate) vmci: Option<RawFd>,
    /// Port of the VMCI socket.
    pub(crate) port: u32,
}

/// Kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Not a descriptor of this library.
    Nothing,
    /// A VMCI connection.
    Connection(Connection),
    /// A listener for TCP and VMCI connections.
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
}

impl Slot {
    #[allow(clippy::declare_interior_mutable_const, reason = "copied into each slot of the static")]
    const EMPTY: Self = Self {
        kind: AtomicU32::new(NOTHING),
        words: [const { AtomicU64::new(0) }; 8],
        epoll: AtomicI32::new(0),
        events: AtomicU32::new(0),
        data: AtomicU64::new(0),
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
}

impl Table {
    /// An empty table.
    #[allow(clippy::new_without_default, clippy::large_stack_arrays, reason = "made for a static")]
    pub(crate) const fn new() -> Self {
        Self { slots: [const { Slot::EMPTY }; SLOTS], end: AtomicU32::new(0) }
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
                let [fds, port, ..] = slot.words();
                let vmci = ((fds >> 32) as u32).cast_signed();
                Held::Listener(Listener {
                    tcp: (fds as u32).cast_signed(),
                    vmci: (vmci >= 0).then_some(vmci),
                    port: port as u32,
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
                let fds = u64::from(it.tcp as u32) | u64::from(it.vmci.unwrap_or(-1) as u32) << 32;
                slot.set(LISTENER, [fds, u64::from(it.port), 0, 0, 0, 0, 0, 0]);
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
mod tests {
    use super::*;

    static TABLE: Table = Table::new();

    fn connection(peer: &str, local: &str) -> Connection {
        let (peer, local) = (peer.parse().unwrap(), local.parse().unwrap());
        Connection { cookie: u64::MAX - 1, peer, local, no_delay: true, unasked: false }
    }

    #[test]
    fn an_entry_is_what_was_entered() {
        for held in [
            Held::Connection(connection("10.0.0.7:6379", "0.0.0.0:65535")),
            Held::Connection(connection("[::ffff:10.0.0.7]:1", "[fd00::6]:2")),
            Held::Connection(Connection {
                no_delay: false,
                unasked: true,
                ..connection("[::]:0", "[::1]:9")
            }),
            Held::Listener(Listener { tcp: 900, vmci: Some(901), port: u32::MAX }),
            Held::Listener(Listener { tcp: 900, vmci: None, port: 80 }),
            Held::Hidden,
            Held::Nothing,
        ] {
            assert!(TABLE.set(100, held));
            assert_eq!(TABLE.get(100), held);
            assert_eq!(TABLE.is_held(100), held != Held::Nothing);
            assert_eq!(TABLE.is_hidden(100), held == Held::Hidden);
        }
        assert!(TABLE.numbers().contains(&100));
    }

    #[test]
    fn numbers_outside_the_table_have_no_entries() {
        for fd in [-1, RawFd::MIN, RawFd::try_from(SLOTS).unwrap(), RawFd::MAX] {
            assert!(!TABLE.set(fd, Held::Hidden));
            assert_eq!(TABLE.get(fd), Held::Nothing);
            TABLE.watched(fd, Watch { epoll: 3, events: 1, data: 2 });
            assert_eq!(TABLE.watch(fd), Ok(None));
        }
    }

    #[test]
    fn a_watch_is_remembered_until_it_ends() {
        let watch = Watch { epoll: 0, events: 5, data: u64::MAX };
        TABLE.watched(7, watch);
        assert_eq!(TABLE.watch(7), Ok(Some(watch)));
        let changed = Watch { events: 1, ..watch };
        TABLE.watched(7, changed);
        TABLE.unwatched(7, 4);
        assert_eq!(TABLE.watch(7), Ok(Some(changed)));
        TABLE.unwatched(7, 0);
        assert_eq!(TABLE.watch(7), Ok(None));
        TABLE.watched(7, watch);
        TABLE.watched(7, Watch { epoll: 4, ..watch });
        assert_eq!(TABLE.watch(7), Err(ManyWatches));
        TABLE.forget(7);
        assert_eq!(TABLE.watch(7), Ok(None));
    }
}
