//! Connect: makes a VMCI connection at the program's descriptor, or leaves the connect to TCP.
//!
//! The library decides during the call. A machine on the same host accepts or refuses within
//! microseconds, so even a non-blocking connect waits for the answer, at most for the `patience` of
//! the map. Afterwards the program has either an established VMCI connection or an untouched TCP
//! socket; its descriptor never becomes another socket later. A non-blocking connect still returns
//! `EINPROGRESS`, as with TCP, and the descriptor is writable at once. Duplicates of the descriptor
//! in this process become the same connection.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, socket_with, sockopt};

use crate::address;
use crate::descriptors::duplicates;
use crate::dial::{Limits, Line, Source, dial};
use crate::gather;
use crate::lookup::{connection, listener};
use crate::map::{Map, Peer};
use crate::options::inherit;
use crate::rings;
use crate::say::{complain, tell};
use crate::state::{TABLE, owns};
use crate::sys::{Name, at, milliseconds as now, option, replace, set_option, tcp_state};
use crate::table::{Connection, Held};
use crate::waiting::Signals;
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
    /// A signal was handled. The connect goes over TCP, in the background, and the program gets
    /// `EINTR`.
    Interrupted,
}

/// A connect of a descriptor that already is a VMCI connection.
pub(crate) fn again(fd: RawFd) -> Option<Errno> {
    let connection = connection(fd)?;
    if connection.unasked {
        // Of several threads one gets the result.
        let is_first = !owns() || TABLE.set_asked(fd, connection.cookie);
        return (!is_first).then_some(Errno::ISCONN);
    }
    Some(Errno::ISCONN)
}

/// Tries to connect a socket to this address by VMCI. The socket may be of any kind.
pub(crate) fn attempt(fd: RawFd, to: SocketAddr, map: &Map) -> Attempt {
    let Some(peer) = map.peer(to) else { return Attempt::Tcp(None) };
    let Some(tcp) = Tcp::look(fd) else {
        if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_UDP) {
            tell!("connect {to}: stays UDP: lines of the map are for TCP");
        }
        return Attempt::Tcp(None);
    };
    // The number may have been that of a listener, closed without the library noticing.
    let _ = listener(fd);
    match try_it(fd, &tcp, to, (peer, map)) {
        Ok(answer) => Attempt::Done(answer),
        // Another thread has closed it, and the number may be another file.
        Err(_) if !is_at(fd, tcp.cookie) => Attempt::Done(Err(Errno::BADF)),
        Err(Some(Errno::INTR)) => Attempt::Interrupted,
        Err(why) => Attempt::Tcp(why),
    }
}

fn try_it(
    fd: RawFd,
    tcp: &Tcp,
    to: SocketAddr,
    (peer, map): (&Peer, &Map),
) -> Result<Result<(), Errno>, Option<Errno>> {
    if tcp.flags.bits() & libc::O_ASYNC as u32 != 0 {
        complain!(
            "{to} stays TCP: the program requests signals (O_ASYNC) for it\nhint: remove it from the map, or use epoll (`man 7 epoll`)"
        );
        return Err(None);
    }
    let all: Vec<RawFd> = std::iter::once(fd).chain(duplicates(fd)).collect();
    if all.iter().any(|fd| TABLE.watch(*fd).is_err()) {
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
    let limits = if non_blocking {
        Limits { patience: map.patience, signals: Signals::Ignored }
    } else {
        blocking_limits(fd)
    };
    let source = Source { port: tcp.bound_port(), v6: to.ip().to_canonical().is_ipv6() };
    let line = dial(&peer.target, port, source, limits).map_err(|error| {
        if error == Errno::TIMEDOUT {
            rest(peer);
        }
        if error == Errno::INTR {
            tell!("connect {to}: by TCP, since a signal was handled");
            return Some(error);
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
    let cookie = sockopt::socket_cookie(&line.socket).unwrap_or_default();
    let connection = Connection { cookie, peer: to, local, no_delay: tcp.no_delay, unasked: non_blocking };
    inherit(fd, line.socket.as_raw_fd(), tcp.v6);
    if !non_blocking {
        fcntl_setfl(&line.socket, OFlags::empty()).map_err(|_| None)?;
    }
    for (number, fd) in all.into_iter().enumerate() {
        match take_place(fd, tcp.cookie, line.socket.as_raw_fd()) {
            Ok(()) => {
                if owns() {
                    TABLE.set(fd, Held::Connection(connection));
                }
            }
            Err(_) if number == 0 => return Err(None),
            Err(error) => tell!("connect {to}: descriptor {fd} is not connected: {error}"),
        }
    }
    tell!("connect {to}: {} port {port}", peer.target);
    rings::begin(fd);
    gather::begin(fd);
    Ok(if non_blocking { Err(Errno::INPROGRESS) } else { Ok(()) })
}

/// A TCP socket that may become a VMCI connection.
struct Tcp {
    cookie: u64,
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
        let cookie = sockopt::socket_cookie(socket).ok()?;
        Some(Self { cookie, v6, flags: fcntl_getfl(socket).ok()?, no_delay, bound })
    }

    fn bound_port(&self) -> Option<u16> {
        self.bound.map(|bound| bound.port()).filter(|port| *port > 0)
    }

    /// The local address that the program sees: the one that the socket was bound to, as far as it
    /// was.
    fn local(&self, line: &Line) -> SocketAddr {
        let ip = self.bound.map_or_else(|| address::unspecified(self.v6), |bound| bound.ip());
        SocketAddr::new(ip, self.bound_port().unwrap_or_else(|| address::tcp_port(line.local_port)))
    }
}

/// Tells whether a descriptor is the socket with this cookie.
fn is_at(fd: RawFd, cookie: u64) -> bool {
    at(fd).and_then(sockopt::socket_cookie) == Ok(cookie)
}

/// Replaces the socket with this cookie at a descriptor by another one. Fails with `EBADF` if
/// another thread has closed it while the library waited for the peer.
fn take_place(fd: RawFd, cookie: u64, socket: RawFd) -> Result<(), Errno> {
    if !is_at(fd, cookie) {
        return Err(Errno::BADF);
    }
    let cloexec = fcntl_getfd(at(fd)?)?.contains(FdFlags::CLOEXEC);
    let watched = watch::lift(fd).map_err(|_| Errno::NOTSUP)?;
    let placed = replace(fd, socket, cloexec);
    watch::put(fd, watched);
    placed
}

/// Limits of a blocking connect. `SO_SNDTIMEO` limits it too, and then every signal ends it (`man 7
/// signal`).
fn blocking_limits(fd: RawFd) -> Limits {
    let limit =
        at(fd).and_then(|socket| sockopt::socket_timeout(socket, sockopt::Timeout::Send)).ok().flatten();
    limit.map_or(Limits { patience: BLOCKING, signals: Signals::Restart }, |limit| Limits {
        patience: limit.min(BLOCKING),
        signals: Signals::Interrupt,
    })
}

/// Dissolves a connection (`connect` with `AF_UNSPEC`): the descriptor and its duplicates become a
/// new TCP socket.
pub(crate) fn dissolve(fd: RawFd, connection: Connection) -> Result<(), Errno> {
    gather::share(fd);
    rings::leave(fd);
    let family = if connection.peer.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = fcntl_getfl(at(fd)?)?;
    let mut kind = SocketFlags::CLOEXEC;
    kind.set(SocketFlags::NONBLOCK, flags.contains(OFlags::NONBLOCK));
    let socket = socket_with(family, SocketType::STREAM, kind, None)?;
    let number = socket.as_raw_fd();
    let _ = set_option(number, libc::SOL_TCP, libc::TCP_NODELAY, connection.no_delay.into());
    for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        if let Ok(Some(time)) = sockopt::socket_timeout(at(fd)?, timeout) {
            let _ = sockopt::set_socket_timeout(&socket, timeout, Some(time));
        }
    }
    for fd in std::iter::once(fd).chain(duplicates(fd)) {
        take_place(fd, connection.cookie, number)?;
        if owns() {
            TABLE.set(fd, Held::Nothing);
        }
    }
    Ok(())
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

fn rests(peer: &Peer) -> bool {
    now() < peer.rests_until.load(Relaxed)
}

fn rest(peer: &Peer) {
    peer.rests_until.store(now() + REST.as_millis() as u64, Relaxed);
}
