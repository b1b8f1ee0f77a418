//! The library's knowledge of the program's descriptors, by number. The table is a fixed array of
//! atomic words, so any thread can read it without locks or allocation, even in a signal handler
//! and between fork and exec.
//!
//! An entry is written before the program can use the number (before connect, listen or accept
//! return) or after it has given up the number (before the close). A correct program therefore
//! never reads a half-written entry. Later changes of a connection concern its flags, which are one
//! word, and its local address, which one thread sets: a flag tells others when it is whole. A
//! program may close a descriptor without the library noticing, by `fclose` or a system call of its
//! own. Users of an entry therefore compare the socket's cookie, which the kernel never reuses. The
//! parts of a listener that its threads change are one word with bits of that cookie, so a late
//! change never meets the next socket of the number.

mod edge;
mod gathering;
mod skipped;
mod slot;
mod state;
mod waited;
mod way;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) use edge::Edge;
use edge::Numbers;
use slot::{
    CONNECTION, DUPLICATED, HIDDEN, INSTANCE, LISTENER, LOCAL, LOCAL_BEGUN, NO_DELAY, NOTHING, Slot, UNASKED,
};
pub(crate) use state::State;
use waited::Waited;
pub(crate) use way::Way;

/// Number of entries. Descriptors with greater numbers stay TCP.
pub(crate) const SLOTS: usize = 65_536;

/// A VMCI connection that replaced the program's TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    /// The socket's cookie (`SO_COOKIE`).
    pub(crate) cookie: u64,
    /// Address of the peer, as the program sees it.
    pub(crate) peer: SocketAddr,
    /// Local address. An unspecified one is replaced when the program asks for it.
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
    /// A hidden descriptor of the library, with its socket's cookie.
    Hidden(u64),
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

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    slots: [Slot; SLOTS],
    /// The greatest number that ever had an entry, plus one.
    end: AtomicU32,
    /// True once there has been a listener.
    listeners: AtomicBool,
    /// The VMCI ports at which the program has waited for connections.
    pub(crate) waited: Waited,
    /// The connections with queue pairs that an epoll instance watches.
    rings: Numbers,
    /// Number of descriptors that the program has closed, modulo 2³².
    closed: AtomicU32,
}

impl Table {
    /// An empty table.
    #[allow(clippy::new_without_default, clippy::large_stack_arrays, reason = "made for a static")]
    pub(crate) const fn new() -> Self {
        Self {
            slots: [const { Slot::EMPTY }; SLOTS],
            end: AtomicU32::new(0),
            listeners: AtomicBool::new(false),
            waited: Waited::none(),
            rings: Numbers::none(),
            closed: AtomicU32::new(0),
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

    /// Tells whether there may be listeners.
    pub(crate) fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::Relaxed)
    }

    /// Tells whether a descriptor may be a listener. Costs one load in a program without any.
    pub(crate) fn may_listen(&self, fd: RawFd) -> bool {
        self.has_listeners()
            && self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) == LISTENER)
    }

    /// Records that two numbers are the same file. The second one is new.
    pub(crate) fn duplicated(&self, one: RawFd, other: RawFd) {
        if let Some(slot) = self.slot(other) {
            slot.root.store(self.root(one).saturating_add(1), Ordering::Relaxed);
        }
        for fd in [one, other] {
            if let Some(slot) = self.slot(fd) {
                slot.marks.fetch_or(DUPLICATED, Ordering::Relaxed);
                self.end.fetch_max((fd as u32).saturating_add(1), Ordering::Relaxed);
            }
        }
    }

    /// Tells whether a number has or had a duplicate.
    pub(crate) fn is_duplicated(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.is_marked(DUPLICATED))
    }

    /// Tells whether anything is known about a number.
    pub(crate) fn is_known(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| {
            slot.kind.load(Ordering::Acquire) != NOTHING
                || slot.epoll.load(Ordering::Relaxed) != 0
                || slot.marks.load(Ordering::Relaxed) != 0
        })
    }

    /// Kind of a descriptor.
    pub(crate) fn get(&self, fd: RawFd) -> Held {
        let Some(slot) = self.slot(fd) else { return Held::Nothing };
        match slot.kind.load(Ordering::Acquire) {
            CONNECTION => {
                // Before the words: if the flag is set, they have the whole address.
                let flags = slot.flags().load(Ordering::Acquire);
                let [cookie, p0, p1, p2, l0, l1, l2, _] = slot.words();
                let local = address([l0, l1, l2]);
                Held::Connection(Connection {
                    cookie,
                    peer: address([p0, p1, p2]),
                    local: if flags & LOCAL != 0 { local } else { without_ip(local) },
                    no_delay: flags & NO_DELAY != 0,
                    unasked: flags & UNASKED != 0,
                })
            }
            LISTENER => {
                let cookie = slot.cookie();
                // The entry is gone if another thread has removed it in the meantime.
                State::of(slot.state.load(Ordering::Acquire), cookie).map_or(Held::Nothing, |state| {
                    Held::Listener(Listener {
                        cookie,
                        vmci: state.vmci,
                        port: slot.port.load(Ordering::Relaxed),
                        backlog: slot.backlog.load(Ordering::Relaxed),
                        armed: state.armed,
                        non_blocking: state.non_blocking,
                        retry: slot.retry.load(Ordering::Relaxed),
                    })
                })
            }
            HIDDEN => Held::Hidden(slot.cookie()),
            _ => Held::Nothing,
        }
    }

    /// Sets an entry; [`Held::Nothing`] removes it. Returns false for a number beyond the table.
    pub(crate) fn set(&self, fd: RawFd, held: Held) -> bool {
        let Some(slot) = self.slot(fd) else { return false };
        match held {
            Held::Nothing => slot.clear(),
            Held::Hidden(cookie) => slot.set(HIDDEN, [cookie, 0, 0, 0, 0, 0, 0, 0], 0),
            Held::Connection(it) => {
                let [p0, p1, p2] = words(it.peer);
                let [l0, l1, l2] = words(it.local);
                let flag = |set, flag| if set { flag } else { 0 };
                let flags = flag(it.no_delay, NO_DELAY)
                    | flag(it.unasked, UNASKED)
                    | flag(!it.local.ip().is_unspecified(), LOCAL);
                slot.set(CONNECTION, [it.cookie, p0, p1, p2, l0, l1, l2, flags], 0);
            }
            Held::Listener(it) => {
                slot.port.store(it.port, Ordering::Relaxed);
                slot.backlog.store(it.backlog, Ordering::Relaxed);
                slot.retry.store(it.retry, Ordering::Relaxed);
                slot.turn.store(0, Ordering::Relaxed);
                let state = State { vmci: it.vmci, armed: it.armed, non_blocking: it.non_blocking };
                slot.set(LISTENER, [it.cookie, 0, 0, 0, 0, 0, 0, 0], state.word(it.cookie));
                self.listeners.store(true, Ordering::Relaxed);
            }
        }
        self.end.fetch_max((fd as u32).saturating_add(1), Ordering::Relaxed);
        true
    }

    /// The entry of the connection with this cookie.
    fn connection(&self, fd: RawFd, cookie: u64) -> Option<&Slot> {
        let slot = self.slot(fd)?;
        (slot.kind.load(Ordering::Acquire) == CONNECTION && slot.cookie() == cookie).then_some(slot)
    }

    /// Records whether the program has set `TCP_NODELAY` of the connection with this cookie.
    pub(crate) fn set_no_delay(&self, fd: RawFd, cookie: u64, on: bool) {
        let Some(slot) = self.connection(fd, cookie) else { return };
        if on {
            slot.flags().fetch_or(NO_DELAY, Ordering::Relaxed);
        } else {
            slot.flags().fetch_and(!NO_DELAY, Ordering::Relaxed);
        }
    }

    /// Records that the program has asked for the result of the connect that made the connection
    /// with this cookie. Returns false if it had asked before.
    pub(crate) fn set_asked(&self, fd: RawFd, cookie: u64) -> bool {
        self.connection(fd, cookie)
            .is_some_and(|slot| slot.flags().fetch_and(!UNASKED, Ordering::Relaxed) & UNASKED != 0)
    }

    /// Sets the local address of the connection with this cookie, unless it is known. Of several
    /// threads one sets it. Port and family stay: until the address is whole, readers of the words
    /// take these alone. A child that is forked meanwhile never gets the rest.
    pub(crate) fn set_local(&self, fd: RawFd, cookie: u64, local: SocketAddr) {
        let Some(slot) = self.connection(fd, cookie) else { return };
        if slot.flags().fetch_or(LOCAL_BEGUN, Ordering::Relaxed) & (LOCAL | LOCAL_BEGUN) != 0 {
            return;
        }
        let [_, _, _, _, parts @ .., _] = &slot.words;
        for (part, word) in parts.iter().zip(words(local)) {
            part.store(word, Ordering::Relaxed);
        }
        slot.flags().fetch_or(LOCAL, Ordering::Release);
    }

    /// Changes the state of the listener with this cookie. Returns the state before; `None` if the
    /// number no longer is that listener, and then changes nothing.
    pub(crate) fn change(&self, fd: RawFd, cookie: u64, change: impl Fn(State) -> State) -> Option<State> {
        let state = &self.slot(fd)?.state;
        let next = |word| State::of(word, cookie).map(|state| change(state).word(cookie));
        let before = state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        State::of(before, cookie)
    }

    /// Takes its VMCI socket from the listener with this cookie. Of several threads one gets it.
    pub(crate) fn take_vmci(&self, fd: RawFd, cookie: u64) -> Option<RawFd> {
        self.change(fd, cookie, |state| State { vmci: None, armed: false, ..state })?.vmci
    }

    /// Ends the entry of the listener with this cookie. What is known about the watch of the number
    /// stays. Returns the last state, or `None` if the number no longer is that listener. Of
    /// several threads one gets it, and [`Self::change`] has no effect any more.
    pub(crate) fn end(&self, fd: RawFd, cookie: u64) -> Option<State> {
        let slot = self.slot(fd)?;
        let gone = |word| State::of(word, cookie).map(|_| 0);
        let last = slot.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, gone).ok()?;
        slot.clear();
        State::of(last, cookie)
    }

    /// Sets the backlog of a listener.
    pub(crate) fn set_backlog(&self, fd: RawFd, backlog: i32) {
        if let Some(slot) = self.slot(fd) {
            slot.backlog.store(backlog, Ordering::Relaxed);
        }
    }

    /// Sets the port of a listener's VMCI socket.
    pub(crate) fn set_port(&self, fd: RawFd, port: u32) {
        if let Some(slot) = self.slot(fd) {
            slot.port.store(port, Ordering::Relaxed);
        }
    }

    /// Sets the time of a listener's next attempt to get its port.
    pub(crate) fn set_retry(&self, fd: RawFd, retry: u64) {
        if let Some(slot) = self.slot(fd) {
            slot.retry.store(retry, Ordering::Relaxed);
        }
    }

    /// Counts the accepts of a listener, so that its two sockets take turns. Of an epoll instance,
    /// counts the waits for one event, so that the kernel and the rings take turns.
    pub(crate) fn turn(&self, fd: RawFd) -> u32 {
        self.slot(fd).map_or(0, |slot| slot.turn.fetch_add(1, Ordering::Relaxed))
    }

    /// All numbers that may have an entry.
    pub(crate) fn numbers(&self) -> std::ops::Range<RawFd> {
        0..self.end.load(Ordering::Relaxed).cast_signed()
    }

    /// Removes everything about a number that is closed.
    pub(crate) fn forget(&self, fd: RawFd) {
        let Some(slot) = self.slot(fd) else { return };
        if slot.kind.load(Ordering::Relaxed) != NOTHING {
            slot.clear();
        }
        if slot.epoll.load(Ordering::Relaxed) != 0 {
            slot.epoll.store(0, Ordering::Relaxed);
        }
        if slot.marks.load(Ordering::Relaxed) != 0 {
            if slot.is_marked(DUPLICATED) {
                self.leave_root(fd);
            }
            slot.marks.store(0, Ordering::Relaxed);
        }
        if slot.way.load(Ordering::Relaxed) != 0 {
            slot.way.store(0, Ordering::Release);
            slot.control.store(0, Ordering::Release);
            self.end_edge(fd);
        }
        if slot.waiting.load(Ordering::Relaxed) != 0 {
            slot.waiting.store(0, Ordering::Relaxed);
        }
    }

    /// Records that an epoll instance watches a descriptor.
    pub(crate) fn watched(&self, fd: RawFd, watch: Watch) {
        let Some(slot) = self.slot(fd) else { return };
        let number = watch.epoll.saturating_add(1);
        let before = slot.epoll.load(Ordering::Relaxed);
        slot.events.store(watch.events, Ordering::Relaxed);
        slot.data.store(watch.data, Ordering::Relaxed);
        let is_same = before > 0 && self.root(before - 1) == self.root(watch.epoll);
        slot.epoll.store(if before == 0 || is_same { number } else { -1 }, Ordering::Relaxed);
        self.end.fetch_max((fd as u32).saturating_add(1), Ordering::Relaxed);
        if let Some(instance) = self.slot(watch.epoll)
            && !instance.is_marked(INSTANCE)
        {
            instance.marks.fetch_or(INSTANCE, Ordering::Relaxed);
        }
    }

    /// Tells whether a number is the only one of an epoll instance that watches descriptors.
    pub(crate) fn is_instance(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.is_marked(INSTANCE) && !slot.is_marked(DUPLICATED))
    }

    /// Records that an epoll instance no longer watches a descriptor.
    pub(crate) fn unwatched(&self, fd: RawFd, epoll: RawFd) {
        let Some(slot) = self.slot(fd) else { return };
        let number = slot.epoll.load(Ordering::Relaxed);
        if number > 0 && self.root(number - 1) == self.root(epoll) {
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

/// The port of an address, with the unspecified IP address of its family.
fn without_ip(address: SocketAddr) -> SocketAddr {
    let ip = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests;
