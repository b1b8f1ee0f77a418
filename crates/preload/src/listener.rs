//! Listen: turns the program's descriptor into one that accepts TCP and VMCI connections.
//!
//! The program's descriptor becomes an epoll instance. It holds the program's TCP socket, which is
//! moved to a hidden number, and a VMCI socket. Such an instance can be polled, selected and
//! watched; it is readable when one of the two sockets is. The program can set its `O_NONBLOCK`. It
//! survives fork, dup and threads like every descriptor. accept takes from both sockets in turns.
//! Options and names are those of the TCP socket.

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

/// Mark of this library in the `data` of the inner watches. The lower half is the watched
/// descriptor.
pub(crate) const COOKIE: u64 = 0x7461_7574_0000_0000;

/// Reason why a listening socket accepts TCP connections only.
#[derive(Debug)]
pub(crate) enum Stays {
    /// The map does not name it.
    Unmapped,
    /// The step failed with this error.
    Failed(&'static str, Errno),
    /// Another listening socket of this program, usually of the other address family, has the VMCI
    /// port.
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

/// Turns a listening TCP socket into a listener for both. Returns the address that it is bound to.
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
        // Both sockets are polled in turn and must not block. The program's own flag is kept at the
        // instance.
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

/// Listens on a Unix socket `<path>_<port>`. A file that an earlier program left there is removed.
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

/// Tells whether this is the file of a Unix socket that no longer exists. A stream connect cannot
/// distinguish that from a socket that does not listen yet. A datagram connect can: it is refused
/// if there is no socket, and fails with `EPROTOTYPE` if there is one.
fn is_left_over(file: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(file).is_ok_and(|file| file.file_type().is_socket());
    let Ok(address) = SocketAddrUnix::new(file) else { return false };
    let asks = |other| connect(other, &address) == Err(Errno::CONNREFUSED);
    is_socket
        && socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).is_ok_and(asks)
}

/// Removes a file that is left over and binds its path. A lock on the folder serialises several
/// programs that do so; each checks the file again.
fn in_place_of(file: &Path, bind: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let folder = file.parent().and_then(|folder| File::open(folder).ok()).ok_or(Errno::ADDRINUSE)?;
    retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive))?;
    if is_left_over(file) {
        let _ = std::fs::remove_file(file);
    }
    let bound = bind();
    // Unlock explicitly: a child may have another descriptor of the lock.
    let _ = flock(&folder, FlockOperation::Unlock);
    bound
}

/// The reason for a failed bind. Programs that listen with one socket for each family use the same
/// port twice.
fn taken(error: Errno, port: u32, what: &'static str) -> Stays {
    if error == Errno::ADDRINUSE && is_ours(port) { Stays::Doubled } else { Stays::Failed(what, error) }
}

/// Tells whether a listener of this program has this VMCI port.
fn is_ours(port: u32) -> bool {
    let has =
        |fd| matches!(TABLE.get(fd), Held::Listener(other) if other.port == port && other.vmci.is_some());
    TABLE.numbers().any(has)
}

/// Result of one accept attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Descriptor of an accepted VMCI connection, and its peer.
    Vmci(RawFd, SocketAddr),
    /// Descriptor of an accepted TCP connection. The program already has the address of its peer.
    Tcp(RawFd),
    /// No connection is waiting.
    Nothing,
    /// The accept failed.
    Failed(Errno),
}

/// Accepts one connection if there is one. `tcp` accepts from the TCP socket.
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
        // A connection that was closed before it was accepted does not count.
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
    tell!("accept {local}: {target} port {port} as {peer}");
    // From here on the descriptor belongs to the program.
    std::mem::forget(accepted);
    Look::Vmci(number, peer)
}

/// The VM whose guest connects through a Unix socket.
fn of_unix_socket(listener: Listener) -> Target {
    let name = listener.vmci.and_then(|fd| getsockname(at(fd).ok()?).ok()).map(Name::from);
    let vm = match &name {
        Some(Name::Unix(Some(path))) => of_unix_name(path).map_or("", |(vm, _)| vm),
        _ => "",
    };
    Target::Unix(PathBuf::from(vm))
}

/// Splits `<path>_<port>` into the path of the VM's socket and the port.
pub(crate) fn of_unix_name(path: &Path) -> Option<(&str, u32)> {
    let (vm, port) = path.to_str()?.rsplit_once('_')?;
    Some((vm, port.parse().ok()?))
}

#[cfg(test)]
mod tests;
