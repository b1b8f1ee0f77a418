//! Listen: gives a listening TCP socket that the map names a VMCI socket beside it.
//!
//! The program's descriptor stays its TCP socket, so everything that works with that also works for
//! programs that bypass this library. The VMCI socket has a hidden number. `listen` binds it, and
//! so reserves its port. It listens from the moment that the program waits for connections through
//! this library: by a blocking `accept`, `poll`, `select` or `epoll_ctl`. Before, and in a program
//! that waits in other ways, its peers are refused and use TCP. Thus no peer is ever connected to a
//! program that does not look.

mod entrance;

use std::ffi::c_int;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{getsockname, listen, sockopt};
use rustix::time::{ClockId, clock_gettime};

use crate::address;
use crate::hidden::{hide, unhide};
use crate::map::{Entrance, Map};
use crate::options::{LISTENER_MARK, set_mark};
use crate::say::tell;
use crate::state::{TABLE, map, owns};
use crate::sys::{Name, at, option};
use crate::table::{Held, Listener, SLOTS};
use crate::watch;

/// Time after which a listener without a VMCI socket tries again to get its port.
const AGAIN_AFTER: u64 = 1000;

/// Reason why a listening socket accepts TCP connections only.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// The map does not name it.
    Unmapped,
    /// The step failed with this error.
    Failed(&'static str, Errno),
    /// Another process has the VMCI port.
    Taken(&'static str, u32),
    /// Another listening socket of this program, usually of the other address family, has the VMCI
    /// port.
    Doubled,
    /// More than one epoll instance watches it already.
    Watched,
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmapped => f.write_str("not in the map"),
            Self::Failed(what, error) => write!(f, "{what}: {error}"),
            Self::Taken(what, port) => write!(f, "{what} {port}: {}", Errno::ADDRINUSE),
            Self::Doubled => f.write_str("another socket of this program accepts its VMCI connections"),
            Self::Watched => f.write_str("more than one epoll instance watches it already"),
        }
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Stays {
    move |error| Stays::Failed(what, error)
}

/// The address of a TCP socket within the table; `None` for other descriptors.
pub(crate) fn tcp_name(fd: RawFd) -> Option<SocketAddr> {
    if usize::try_from(fd).ok()? >= SLOTS
        || option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).ok()? != libc::IPPROTO_TCP
    {
        return None;
    }
    match Name::from(getsockname(at(fd).ok()?).ok()?) {
        Name::Inet(address) => Some(address),
        _ => None,
    }
}

/// Tells whether this is a listening TCP socket.
pub(crate) fn is_listening(fd: RawFd) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
        && option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// Gives a listening TCP socket its VMCI socket. Returns the address that it is bound to.
pub(crate) fn attach(fd: RawFd, backlog: c_int, map: &Map) -> Result<SocketAddr, (SocketAddr, Stays)> {
    let nowhere = SocketAddr::new(address::unspecified(false), 0);
    let Some(bound) = tcp_name(fd) else { return Err((nowhere, Stays::Unmapped)) };
    let Some(entrance) = map.entrance(bound) else { return Err((bound, Stays::Unmapped)) };
    make(fd, backlog, bound, entrance).map(|()| bound).map_err(|why| (bound, why))
}

fn make(fd: RawFd, backlog: c_int, bound: SocketAddr, entrance: &Entrance) -> Result<(), Stays> {
    let program = at(fd).map_err(failed("its descriptor"))?;
    let cookie = sockopt::socket_cookie(program).map_err(failed("its cookie"))?;
    let cloexec = fcntl_getfd(program).map_err(failed("its flags"))?.contains(FdFlags::CLOEXEC);
    let listener = Listener {
        cookie,
        vmci: None,
        port: 0,
        backlog,
        armed: false,
        non_blocking: false,
        retry: now() + AGAIN_AFTER,
    };
    if TABLE.watch(fd).is_err() {
        return Err(Stays::Watched);
    }
    let (vmci, port) = match entrance::open(entrance, bound.port()) {
        Ok(opened) => opened,
        Err(Stays::Taken(what, port)) => {
            TABLE.set(fd, Held::Listener(listener));
            return Err(if is_ours(port) { Stays::Doubled } else { Stays::Taken(what, port) });
        }
        Err(why) => return Err(why),
    };
    set_mark(vmci.as_raw_fd(), LISTENER_MARK);
    let vmci = hide(vmci.as_raw_fd(), cloexec).map_err(failed("a descriptor more"))?;
    let listener = Listener { vmci: Some(vmci), port, retry: 0, ..listener };
    TABLE.set(fd, Held::Listener(listener));
    if TABLE.watch(fd) != Ok(None) {
        arm(fd, listener);
    }
    Ok(())
}

/// Tells whether a listener of this program has this VMCI port.
fn is_ours(port: u32) -> bool {
    let has =
        |fd| matches!(TABLE.get(fd), Held::Listener(other) if other.port == port && other.vmci.is_some());
    TABLE.numbers().any(has)
}

/// Lets the VMCI socket of a listener accept connections, since the program waits for them now.
/// Returns the listener as it is afterwards.
pub(crate) fn arm(fd: RawFd, listener: Listener) -> Listener {
    let (Some(vmci), false) = (listener.vmci, listener.armed) else { return listener };
    match at(vmci).and_then(|socket| listen(socket, listener.backlog)) {
        Ok(()) => {
            let armed = Listener { armed: true, ..listener };
            if owns() {
                TABLE.set(fd, Held::Listener(armed));
            }
            watch::follow(fd, vmci);
            armed
        }
        Err(error) => {
            tell!("descriptor {fd}: TCP only: its VMCI socket does not listen: {error}");
            listener
        }
    }
}

/// Tries again to get the VMCI port of a listener that lacks it, since the program accepts
/// connections. At most once a second.
pub(crate) fn try_again(fd: RawFd, listener: Listener) {
    if listener.vmci.is_some() || now() < listener.retry || !owns() {
        return;
    }
    let Some(map) = map() else { return };
    if let Ok(bound) = attach(fd, listener.backlog, map) {
        tell!("listen {bound}: TCP and VMCI");
    }
}

/// Gives up the VMCI socket of a listener that is passed to another process, which may get the port
/// now. If this process continues to accept, it tries to get the port back.
pub(crate) fn hand_over(fd: RawFd, listener: Listener) {
    if let Some(vmci) = listener.vmci
        && owns()
    {
        let retry = now() + AGAIN_AFTER;
        TABLE.set(fd, Held::Listener(Listener { vmci: None, armed: false, retry, ..listener }));
        watch::leave(fd, vmci);
        unhide(vmci);
    }
}

/// Finds the VMCI socket of a listening TCP socket that this process inherited, among the
/// descriptors of these numbers.
pub(crate) fn inherited(fd: RawFd, numbers: &[RawFd], map: &Map) -> Option<Listener> {
    let bound = tcp_name(fd)?;
    let entrance = map.entrance(bound)?;
    let is_it = |number: RawFd| {
        !TABLE.is_held(number)
            && option(number, libc::SOL_SOCKET, libc::SO_PRIORITY) == Ok(LISTENER_MARK)
            && at(number)
                .and_then(getsockname)
                .is_ok_and(|name| entrance::is_named(&name.into(), entrance, bound.port()))
    };
    let vmci = numbers.iter().copied().find(|number| is_it(*number))?;
    let port = match at(vmci).and_then(getsockname).map(Name::from) {
        Ok(Name::Vsock(address)) => address.port,
        _ => u32::from(bound.port()),
    };
    Some(Listener {
        cookie: at(fd).and_then(sockopt::socket_cookie).ok()?,
        vmci: Some(vmci),
        port,
        backlog: libc::SOMAXCONN,
        armed: false,
        non_blocking: false,
        retry: 0,
    })
}

/// The monotonic clock in milliseconds.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests;
