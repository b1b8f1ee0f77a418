//! What becomes of a program's listen: a descriptor that accepts TCP and VMCI connections.
//!
//! The program's number becomes an epoll instance that holds its TCP socket, moved to a number it does not know, and a VMCI socket
//! beside it. Such an instance can itself be polled, selected and watched, is readable when one of both is, and its `O_NONBLOCK` is the
//! program's to set. It lives on through fork, dup and threads as any descriptor does. accept takes from both in turns; options and names
//! are the TCP socket's.

use std::ffi::c_int;
use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use rustix::io::{Errno, FdFlags, fcntl_getfd, retry_on_intr};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, connect, getsockname,
    listen, socket_with, sockopt,
};

use crate::address;
use crate::hidden::{hide, unhide};
use crate::map::{Entrance, Map, Target};
use crate::options::inherit;
use crate::say::tell;
use crate::state::{TABLE, map};
use crate::sys::{Name, VsockAddress, at, option, replace};
use crate::table::{Connection, Held, Listener, SLOTS};
use crate::watch;

/// In the `data` of the inner watches: whose instance this is. The lower half is the watched number.
pub(crate) const COOKIE: u64 = 0x7461_7574_0000_0000;

/// Why a listening socket stays with TCP alone.
#[derive(Debug)]
pub(crate) enum Stays {
    /// It was not meant.
    Unmapped,
    /// It was, but this did not work.
    Failed(&'static str, Errno),
    /// Its twin is there already: another listening socket of this program, of the other family usually.
    Doubled,
}

impl fmt::Display for Stays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmapped => f.write_str("not in the map"),
            Self::Failed(what, error) => write!(f, "{what}: {error}"),
            Self::Doubled => f.write_str("another socket of this program accepts its VMCI connections"),
        }
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Stays {
    move |error| Stays::Failed(what, error)
}

/// Makes a TCP socket that listens a listener for both. What the program was bound to is in the answer.
pub(crate) fn combine(fd: RawFd, backlog: c_int, map: &Map) -> Result<SocketAddr, (SocketAddr, Stays)> {
    let nowhere = SocketAddr::new(address::unspecified(false), 0);
    let Some(bound) = tcp_name(fd) else { return Err((nowhere, Stays::Unmapped)) };
    let Some(entrance) = map.entrance(bound) else { return Err((bound, Stays::Unmapped)) };
    make(fd, backlog, bound, entrance).map(|()| bound).map_err(|why| (bound, why))
}

fn tcp_name(fd: RawFd) -> Option<SocketAddr> {
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

fn make(fd: RawFd, backlog: c_int, bound: SocketAddr, entrance: &Entrance) -> Result<(), Stays> {
    let program = at(fd).map_err(failed("its descriptor"))?;
    let (vmci, port) = match entrance {
        Entrance::Vsock(port) => vsock(port.unwrap_or(u32::from(bound.port())), backlog)?,
        Entrance::Unix(path, port) => unix(path, port.unwrap_or(u32::from(bound.port())), backlog)?,
    };
    let flags = fcntl_getfl(program).map_err(failed("its flags"))?;
    let cloexec = fcntl_getfd(program).map_err(failed("its flags"))?.contains(FdFlags::CLOEXEC);
    let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll"))?;
    let tcp = hide(fd, cloexec).map_err(failed("a descriptor more"))?;
    let vmci =
        hide(vmci.as_raw_fd(), cloexec).inspect_err(|_| unhide(tcp)).map_err(failed("a descriptor more"))?;
    let placed = (|| {
        for hidden in [tcp, vmci] {
            let data = EventData::new_u64(COOKIE | u64::from(hidden as u32));
            epoll::add(&both, at(hidden)?, data, EventFlags::IN)?;
        }
        // Both are asked in turn and must not wait; whether the program waits is a flag of the instance.
        fcntl_setfl(at(tcp)?, flags | OFlags::NONBLOCK)?;
        fcntl_setfl(&both, flags & OFlags::NONBLOCK)?;
        let watched = watch::lift(fd).map_err(|_| Errno::NOTSUP)?;
        let placed = replace(fd, both.as_raw_fd(), cloexec);
        let watched =
            watched.map(|watch| crate::table::Watch { events: watch::for_listener(watch.events), ..watch });
        watch::put(fd, watched);
        placed
    })();
    if let Err(error) = placed {
        let _ = fcntl_setfl(program, flags);
        unhide(tcp);
        unhide(vmci);
        return Err(Stays::Failed("its descriptor", error));
    }
    TABLE.set(fd, Held::Listener(Listener { tcp, vmci: Some(vmci), port }));
    Ok(())
}

fn vsock(port: u32, backlog: c_int) -> Result<(OwnedFd, u32), Stays> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None).map_err(failed("AF_VSOCK"))?;
    let anywhere = VsockAddress { cid: libc::VMADDR_CID_ANY, port, to_host: false };
    bind(&socket, &anywhere).map_err(|error| taken(error, port, "its VMCI port"))?;
    listen(&socket, backlog).map_err(failed("listening"))?;
    Ok((socket, port))
}

/// A Unix socket `<path>_<port>`. What an earlier program left there is removed.
fn unix(path: &Path, port: u32, backlog: c_int) -> Result<(OwnedFd, u32), Stays> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let file = PathBuf::from(format!("{}_{port}", path.display()));
    let address = SocketAddrUnix::new(&file).map_err(failed("its path"))?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed("AF_UNIX"))?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if is_left_over(&file) => in_place_of(&file, || bind(&socket, &address)),
        result => result,
    }
    .map_err(|error| taken(error, port, "its Unix socket"))?;
    listen(&socket, backlog).map_err(failed("listening"))?;
    Ok((socket, port))
}

/// Is this the file of a Unix socket that is gone? Whoever connects cannot tell it from one that does not listen yet, except with a
/// socket of another kind: that is refused where there is no socket, and of the wrong type (`EPROTOTYPE`) where there is one.
fn is_left_over(file: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(file).is_ok_and(|file| file.file_type().is_socket());
    let Ok(address) = SocketAddrUnix::new(file) else { return false };
    let asks = |other| connect(other, &address) == Err(Errno::CONNREFUSED);
    is_socket
        && socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).is_ok_and(asks)
}

/// Binds where a file was left over. Of several programs that found it so, one removes it: they look again one after the other.
fn in_place_of(file: &Path, bind: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let folder = file.parent().and_then(|folder| File::open(folder).ok()).ok_or(Errno::ADDRINUSE)?;
    retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive))?;
    if is_left_over(file) {
        let _ = std::fs::remove_file(file);
    }
    let bound = bind();
    // Not left to its last descriptor: a child may have one.
    let _ = flock(&folder, FlockOperation::Unlock);
    bound
}

/// Programs that listen with a socket for each family do so on the same port.
fn taken(error: Errno, port: u32, what: &'static str) -> Stays {
    if error == Errno::ADDRINUSE && is_ours(port) { Stays::Doubled } else { Stays::Failed(what, error) }
}

/// Does a listener of this program have this VMCI port?
fn is_ours(port: u32) -> bool {
    let has =
        |fd| matches!(TABLE.get(fd), Held::Listener(other) if other.port == port && other.vmci.is_some());
    TABLE.numbers().any(has)
}

/// One look for connections.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The descriptor of an accepted VMCI connection, and its other end.
    Vmci(RawFd, SocketAddr),
    /// The descriptor of an accepted TCP connection, whose other end the program has been told.
    Tcp(RawFd),
    /// There is none.
    Nothing,
    /// This instead.
    Failed(Errno),
}

/// Takes one connection if there is one, from TCP by `tcp`.
pub(crate) fn look(
    fd: RawFd,
    listener: Listener,
    flags: c_int,
    tcp: &dyn Fn(RawFd) -> Result<RawFd, Errno>,
) -> Look {
    let tcp = || match tcp(listener.tcp) {
        Ok(accepted) => {
            TABLE.forget(accepted);
            Look::Tcp(accepted)
        }
        Err(Errno::AGAIN) => Look::Nothing,
        Err(error) => Look::Failed(error),
    };
    let vmci = || vmci(listener, flags);
    let one_after_the_other = |first: Look, second: &dyn Fn() -> Look| match first {
        Look::Nothing => second(),
        found => found,
    };
    if TABLE.turn(fd).is_multiple_of(2) {
        one_after_the_other(vmci(), &tcp)
    } else {
        one_after_the_other(tcp(), &vmci)
    }
}

fn vmci(listener: Listener, flags: c_int) -> Look {
    let Some(Ok(socket)) = listener.vmci.map(at) else { return Look::Nothing };
    let flags = SocketFlags::from_bits_retain(flags as u32) & (SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
    let (accepted, from) = match acceptfrom_with(socket, flags) {
        Ok(accepted) => accepted,
        Err(Errno::MFILE) => return Look::Failed(Errno::MFILE),
        Err(Errno::NFILE) => return Look::Failed(Errno::NFILE),
        // A connection that was gone before it was accepted is none.
        Err(_) => return Look::Nothing,
    };
    let (target, port) = match from.map(Name::from) {
        Some(Name::Vsock(address)) => (Target::Cid(address.cid), address.port),
        _ => (of_unix_socket(listener), TABLE.turn(listener.tcp) as u32 | 0xc000),
    };
    let number = accepted.as_raw_fd();
    inherit(listener.tcp, number);
    let at_tcp = tcp_name(listener.tcp);
    let v6 = at_tcp.is_some_and(|name| name.is_ipv6());
    let peer = address::of_peer(map(), &target, port, v6);
    let local = at_tcp.unwrap_or_else(|| SocketAddr::new(address::unspecified(v6), 0));
    let no_delay = option(listener.tcp, libc::SOL_TCP, libc::TCP_NODELAY).is_ok_and(|set| set != 0);
    let cookie = sockopt::socket_cookie(&accepted).unwrap_or_default();
    TABLE.forget(number);
    TABLE.set(number, Held::Connection(Connection { cookie, peer, local, no_delay, unasked: false }));
    tell!("accepted {target} port {port} at {local} as {peer}");
    // From here on it is the program's.
    std::mem::forget(accepted);
    Look::Vmci(number, peer)
}

/// Whose guest it is that comes through a Unix socket.
fn of_unix_socket(listener: Listener) -> Target {
    let name = listener.vmci.and_then(|fd| getsockname(at(fd).ok()?).ok()).map(Name::from);
    let vm = match &name {
        Some(Name::Unix(Some(path))) => of_unix_name(path).map_or("", |(vm, _)| vm),
        _ => "",
    };
    Target::Unix(PathBuf::from(vm))
}

/// The path of the VM's socket and the port, from `<path>_<port>`.
pub(crate) fn of_unix_name(path: &Path) -> Option<(&str, u32)> {
    let (vm, port) = path.to_str()?.rsplit_once('_')?;
    Some((vm, port.parse().ok()?))
}

#[cfg(test)]
mod tests;
