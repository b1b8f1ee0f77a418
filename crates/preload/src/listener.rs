//! Listen: gives a listening TCP socket that the map names a VMCI socket beside it.
//!
//! The program's descriptor stays its TCP socket, so everything that works with that also works for
//! programs that bypass this library. The VMCI socket has a hidden number. `listen` binds it, and
//! so reserves its port. It listens from the moment that the program waits for connections through
//! this library: by a blocking `accept`, `poll`, `select` or `epoll_ctl`. Before, and in a program
//! that waits in other ways, its peers are refused and use TCP. Thus no peer is ever connected to a
//! program that does not look. A program that has waited at a port before, and listens there again,
//! is expected to wait again: servers such as iperf3 open a new listener for each client, and tell
//! the client before they wait.

mod entrance;

use std::ffi::c_int;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{getsockname, listen, sockopt};

use crate::address;
use crate::hidden::{hide, unhide};
use crate::map::{Entrance, Map};
use crate::options::{LISTENER_MARK, set_mark};
use crate::say::{complain, tell};
use crate::state::{TABLE, map, owns};
use crate::sys::{Name, at, milliseconds as now, option};
use crate::table::{Held, Listener, SLOTS, State};
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

impl Stays {
    /// The advice for a socket that cannot be opened.
    pub(crate) fn hint(&self) -> &'static str {
        let Self::Failed(_, error) = self else {
            return "end the other program that has this VMCI port, or give one of them another port in the map";
        };
        match *error {
            Errno::ACCESS | Errno::PERM => {
                "ports below 1024 require root; on the host, give the program's user write permission for the socket's folder"
            }
            Errno::AFNOSUPPORT => {
                "load the kernel module `vsock`, and in a guest `vmw_vsock_virtio_transport`"
            }
            Errno::ADDRNOTAVAIL | Errno::NODEV => "give this VM a VMCI device (`[vmci]` in its file)",
            Errno::NOENT | Errno::NOTDIR => "name the VMCI socket of a VM that is there in the map",
            Errno::MFILE | Errno::NFILE => "raise the limit of open files (`ulimit -n`)",
            _ => "remove its line from the map if it is to stay TCP",
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
    let program = at(fd).map_err(failed("cannot use the descriptor"))?;
    let cookie = sockopt::socket_cookie(program).map_err(failed("cannot read the socket's cookie"))?;
    if TABLE.watch(fd).is_err() {
        return Err(Stays::Watched);
    }
    let listener = Listener {
        cookie,
        vmci: None,
        port: 0,
        backlog,
        armed: false,
        non_blocking: false,
        retry: now() + AGAIN_AFTER,
    };
    TABLE.set(fd, Held::Listener(listener));
    let given = give(fd, listener, bound, entrance);
    // A listener whose port is taken tries again later.
    if let Err(Stays::Failed(..)) = given {
        TABLE.end(fd, cookie);
    }
    if let Held::Listener(known) = TABLE.get(fd)
        && TABLE.waited.has(known.port)
    {
        arm(fd, known);
    }
    given
}

/// Gives a listener in the table its VMCI socket, unless its entry has ended meanwhile.
fn give(fd: RawFd, listener: Listener, bound: SocketAddr, entrance: &Entrance) -> Result<(), Stays> {
    let flags = at(fd).and_then(fcntl_getfd).map_err(failed("cannot read the descriptor's flags"))?;
    let (vmci, port) = match entrance::open(entrance, bound.port()) {
        Err(Stays::Taken(_, port)) if is_ours(port) => return Err(Stays::Doubled),
        opened => opened?,
    };
    set_mark(vmci.as_raw_fd(), LISTENER_MARK);
    let vmci = hide(vmci.as_raw_fd(), flags.contains(FdFlags::CLOEXEC))
        .map_err(failed("cannot duplicate the VMCI socket"))?;
    let before = TABLE.change(fd, listener.cookie, |state| match state.vmci {
        None => State { vmci: Some(vmci), armed: false, ..state },
        Some(_) => state,
    });
    if before.is_none_or(|state| state.vmci.is_some()) {
        // Another thread was faster, or has closed the listener.
        unhide(vmci);
        return Ok(());
    }
    TABLE.set_port(fd, port);
    share(fd, listener.cookie, vmci, port);
    if TABLE.watch(fd).is_ok_and(|watch| watch.is_some_and(|watch| watch::reads(watch.events))) {
        arm(fd, Listener { vmci: Some(vmci), port, armed: false, ..listener });
    }
    Ok(())
}

/// Gives the other numbers of a listener its new VMCI socket, too.
fn share(fd: RawFd, cookie: u64, vmci: RawFd, port: u32) {
    for other in TABLE.numbers().filter(|other| *other != fd) {
        let Held::Listener(known) = TABLE.get(other) else { continue };
        if known.cookie != cookie || known.vmci.is_some() {
            continue;
        }
        let Ok(flags) = at(other).and_then(fcntl_getfd) else { continue };
        let Ok(copy) = hide(vmci, flags.contains(FdFlags::CLOEXEC)) else { continue };
        let before = TABLE.change(other, cookie, |state| match state.vmci {
            None => State { vmci: Some(copy), armed: false, ..state },
            Some(_) => state,
        });
        if before.is_none_or(|state| state.vmci.is_some()) {
            unhide(copy);
        } else {
            TABLE.set_port(other, port);
        }
    }
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
    let armed =
        at(vmci).and_then(|socket| listen(socket, listener.backlog)).and_then(|()| watch::follow(fd, vmci));
    if let Err(error) = armed {
        // Otherwise another thread has just shut the listener down or closed it.
        if matches!(TABLE.get(fd), Held::Listener(it) if it.cookie == listener.cookie && it.vmci == Some(vmci))
        {
            stays_tcp(listener, error);
        }
        return Listener { vmci: None, ..listener };
    }
    if owns() {
        TABLE.waited.add(listener.port);
        TABLE.change(fd, listener.cookie, |state| State { armed: state.vmci == Some(vmci), ..state });
    }
    Listener { armed: true, ..listener }
}

/// Gives up the VMCI socket of a listener that cannot be watched or does not listen.
pub(crate) fn stays_tcp(listener: Listener, error: Errno) {
    complain!(
        "a listener accepts TCP connections only: its VMCI socket cannot be watched: {error}\n\
         hint: for ENOSPC, raise `sysctl fs.epoll.max_user_watches`; then start the program again"
    );
    hand_over(listener);
}

/// Tries again to get the VMCI port of a listener that lacks it, since the program accepts
/// connections. At most once a second.
pub(crate) fn try_again(fd: RawFd, listener: Listener) {
    if listener.vmci.is_none() && now() >= listener.retry {
        attach_again(fd, listener);
    }
}

/// Tries to get the VMCI port of a listener back.
pub(crate) fn attach_again(fd: RawFd, listener: Listener) {
    let (Some(map), true) = (map(), owns()) else { return };
    // Before the attempt, so that every kind of failure has a pause.
    TABLE.set_retry(fd, now() + AGAIN_AFTER);
    let Some(bound) = tcp_name(fd) else { return };
    if map.entrance(bound).is_some_and(|entrance| give(fd, listener, bound, entrance).is_ok()) {
        tell!("listen {bound}: TCP and VMCI");
    }
}

/// Gives up the VMCI socket of a listener at all its numbers, because it is passed to another
/// process, which may get the port now, or because it does not work. If this process continues to
/// accept, it tries to get the port back.
pub(crate) fn hand_over(listener: Listener) {
    if !owns() {
        return;
    }
    for fd in TABLE.numbers() {
        let Held::Listener(other) = TABLE.get(fd) else { continue };
        if other.cookie != listener.cookie {
            continue;
        }
        TABLE.set_retry(fd, now() + AGAIN_AFTER);
        if let Some(vmci) = TABLE.take_vmci(fd, other.cookie) {
            watch::leave(fd, vmci);
            unhide(vmci);
        }
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

#[cfg(test)]
mod tests;
