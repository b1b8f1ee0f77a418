//! Connect: makes a VMCI connection at the program's descriptor, or leaves the connect to TCP.
//!
//! The library decides during the call. A machine on the same host accepts or refuses within
//! microseconds, so even a non-blocking connect waits for the answer, at most for the `patience` of
//! the map. Afterwards the program has either an established VMCI connection or an untouched TCP
//! socket; its descriptor never becomes another socket later. A non-blocking connect still returns
//! `EINPROGRESS`, as with TCP, and the descriptor is writable at once.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{AddressFamily, getsockname, sockopt};
use rustix::time::{ClockId, clock_gettime};

use crate::address;
use crate::dial::{Line, dial};
use crate::lookup::connection;
use crate::map::{Map, Peer};
use crate::options::inherit;
use crate::say::{complain, tell};
use crate::state::TABLE;
use crate::sys::{Name, at, option, replace, tcp_state};
use crate::table::{Connection, Held};
use crate::watch;

/// Timeout of a blocking connect, the same as the kernel's for `AF_VSOCK`
/// (`VSOCK_DEFAULT_CONNECT_TIMEOUT`).
const BLOCKING: Duration = Duration::from_secs(2);
/// Time for which a machine that did not answer in time is not tried again.
const REST: Duration = Duration::from_secs(1);

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The connect is finished with this result.
    Done(Result<(), Errno>),
    /// The connect goes over TCP. If TCP has no route, the error is the one of VMCI.
    Tcp(Option<Errno>),
}

/// A connect of a descriptor that already is a VMCI connection.
pub(crate) fn again(fd: RawFd) -> Option<Errno> {
    let connection = connection(fd)?;
    if connection.unasked {
        TABLE.set(fd, Held::Connection(Connection { unasked: false, ..connection }));
        return None;
    }
    Some(Errno::ISCONN)
}

/// Tries to connect a socket to this address by VMCI. The socket may be of any kind.
pub(crate) fn attempt(fd: RawFd, to: SocketAddr, map: &Map) -> Attempt {
    let Some(peer) = map.peer(to) else { return Attempt::Tcp(None) };
    match try_it(fd, to, peer, map) {
        Ok(answer) => Attempt::Done(answer),
        Err(why) => Attempt::Tcp(why),
    }
}

fn try_it(fd: RawFd, to: SocketAddr, peer: &Peer, map: &Map) -> Result<Result<(), Errno>, Option<Errno>> {
    let tcp = Tcp::look(fd).ok_or(None)?;
    if tcp.flags.bits() & libc::O_ASYNC as u32 != 0 {
        complain!(
            "{to} stays TCP: the program requests signals (O_ASYNC) for it\nhint: remove it from the map, or use epoll (`man 7 epoll`)"
        );
        return Err(None);
    }
    if TABLE.watch(fd).is_err() {
        complain!(
            "{to} stays TCP: more than one epoll instance watches its socket already\nhint: connect the socket before it is watched"
        );
        return Err(None);
    }
    if rests(peer) {
        tell!("connect {to}: by TCP, since {} did not answer a moment ago", peer.target);
        return Err(Some(Errno::TIMEDOUT));
    }
    let port = peer.vmci_port(to.port());
    let non_blocking = tcp.flags.contains(OFlags::NONBLOCK);
    let patience = if non_blocking { map.patience } else { blocking_patience(fd) };
    let line = dial(&peer.target, port, patience).map_err(|error| {
        if error == Errno::TIMEDOUT {
            rest(peer);
        }
        if let Some(hint) = hint(error) {
            complain!("connect {to}: by TCP, since VMCI fails: {}: {error}\nhint: {hint}", peer.target);
        }
        let nobody = matches!(error, Errno::CONNRESET | Errno::CONNREFUSED);
        let why = if nobody { " (nobody listens there)" } else { "" };
        tell!("connect {to}: by TCP, since VMCI fails: {} port {port}: {error}{why}", peer.target);
        Some(plainly(error))
    })?;
    let local = tcp.local(&line);
    take_place(fd, &line, tcp.flags).map_err(|_| None)?;
    let cookie = at(fd).and_then(sockopt::socket_cookie).unwrap_or_default();
    let unasked = non_blocking;
    TABLE.set(fd, Held::Connection(Connection { cookie, peer: to, local, no_delay: tcp.no_delay, unasked }));
    tell!("connect {to}: {} port {port}", peer.target);
    Ok(if non_blocking { Err(Errno::INPROGRESS) } else { Ok(()) })
}

/// A TCP socket that may become a VMCI connection.
struct Tcp {
    v6: bool,
    flags: OFlags,
    no_delay: bool,
    bound: Option<SocketAddr>,
}

impl Tcp {
    /// Examines a socket; `None` if it is not a TCP socket, or connecting or connected already.
    fn look(fd: RawFd) -> Option<Self> {
        /// The kernel's `TCP_CLOSE`: neither connected nor connecting.
        const CLOSED: u8 = 7;
        if usize::try_from(fd).ok()? >= crate::table::SLOTS {
            return None;
        }
        let socket = at(fd).ok()?;
        let domain = sockopt::socket_domain(socket).ok()?;
        let v6 = domain == AddressFamily::INET6;
        if !(v6 || domain == AddressFamily::INET)
            || option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).ok()? != libc::IPPROTO_TCP
            || tcp_state(fd).ok()? != CLOSED
        {
            return None;
        }
        let bound = match Name::from(getsockname(socket).ok()?) {
            Name::Inet(address) => Some(address),
            _ => None,
        };
        let no_delay = option(fd, libc::SOL_TCP, libc::TCP_NODELAY).ok()? != 0;
        Some(Self { v6, flags: fcntl_getfl(socket).ok()?, no_delay, bound })
    }

    /// The local address that the program sees: the one that the socket was bound to, as far as it
    /// was.
    fn local(&self, line: &Line) -> SocketAddr {
        let ip = self.bound.map_or_else(|| address::unspecified(self.v6), |bound| bound.ip());
        let port = self.bound.map(|bound| bound.port()).filter(|port| *port > 0);
        SocketAddr::new(ip, port.unwrap_or_else(|| address::tcp_port(line.local_port)))
    }
}

/// Replaces the socket at the descriptor by the VMCI connection and copies the options that the
/// program has set.
fn take_place(fd: RawFd, line: &Line, flags: OFlags) -> Result<(), Errno> {
    inherit(fd, line.socket.as_raw_fd());
    if !flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(&line.socket, OFlags::empty())?;
    }
    let cloexec = fcntl_getfd(at(fd)?)?.contains(FdFlags::CLOEXEC);
    let watched = watch::lift(fd).map_err(|_| Errno::NOTSUP)?;
    let placed = replace(fd, line.socket.as_raw_fd(), cloexec);
    watch::put(fd, watched);
    placed
}

/// Timeout of a blocking connect. `SO_SNDTIMEO` limits it too (`man 7 socket`).
fn blocking_patience(fd: RawFd) -> Duration {
    let limit =
        at(fd).and_then(|socket| sockopt::socket_timeout(socket, sockopt::Timeout::Send)).ok().flatten();
    limit.map_or(BLOCKING, |limit| limit.min(BLOCKING))
}

/// A hint for errors other than those of a missing peer.
fn hint(error: Errno) -> Option<&'static str> {
    match error {
        Errno::ACCESS | Errno::PERM => Some(
            "give the program's user write permission for that socket and search permission for its folders",
        ),
        Errno::PROTO => Some(
            "name the VMCI socket of a VM in the map; this socket does not answer `CONNECT <port>` with `OK <port>`",
        ),
        Errno::AFNOSUPPORT => {
            Some("load the kernel module `vsock`, and in a guest `vmw_vsock_virtio_transport`")
        }
        Errno::NODEV => Some("give this VM a VMCI device (`[vmci]` in its file)"),
        _ => None,
    }
}

/// The error that TCP would return in this case.
fn plainly(error: Errno) -> Errno {
    match error {
        Errno::CONNRESET | Errno::NOENT | Errno::PROTO => Errno::CONNREFUSED,
        other => other,
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

fn rests(peer: &Peer) -> bool {
    now() < peer.rests_until.load(Relaxed)
}

fn rest(peer: &Peer) {
    peer.rests_until.store(now() + REST.as_millis() as u64, Relaxed);
}
