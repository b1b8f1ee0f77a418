//! Opens the VMCI socket of a listener: an `AF_VSOCK` port, or the file of a Unix socket.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

use super::{Stays, failed};
use crate::map::Entrance;
use crate::sys::{Name, VsockAddress};

/// Opens and binds the socket; it does not listen yet. Until then peers are refused and use TCP.
/// Returns its port, too.
pub(crate) fn open(entrance: &Entrance, tcp_port: u16) -> Result<(OwnedFd, u32), Stays> {
    match entrance {
        Entrance::Vsock(port) => vsock(port.unwrap_or(u32::from(tcp_port))),
        Entrance::Unix(path, port) => unix(path, port.unwrap_or(u32::from(tcp_port))),
    }
}

/// Tells whether this is the name of a socket that [`open`] made for this entrance.
pub(crate) fn is_named(name: &Name, entrance: &Entrance, tcp_port: u16) -> bool {
    match (name, entrance) {
        (Name::Vsock(at), Entrance::Vsock(port)) => at.port == port.unwrap_or(u32::from(tcp_port)),
        (Name::Unix(Some(at)), Entrance::Unix(path, port)) => {
            *at == file(path, port.unwrap_or(u32::from(tcp_port)))
        }
        _ => false,
    }
}

fn file(path: &Path, port: u32) -> PathBuf {
    PathBuf::from(format!("{}_{port}", path.display()))
}

fn vsock(port: u32) -> Result<(OwnedFd, u32), Stays> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)
        .map_err(failed("cannot open a socket of AF_VSOCK"))?;
    let anywhere = VsockAddress { cid: libc::VMADDR_CID_ANY, port, to_host: false };
    bind(&socket, &anywhere).map_err(taken("its VMCI port", port))?;
    Ok((socket, port))
}

/// Binds a Unix socket `<path>_<port>`. A file that an earlier program left there is removed.
pub(super) fn unix(path: &Path, port: u32) -> Result<(OwnedFd, u32), Stays> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let file = file(path, port);
    let address = SocketAddrUnix::new(&file).map_err(failed("its path is too long"))?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(failed("cannot open a Unix socket"))?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if is_left_over(&file) => in_place_of(&file, || bind(&socket, &address)),
        result => result,
    }
    .map_err(taken("its Unix socket", port))?;
    Ok((socket, port))
}

fn taken(what: &'static str, port: u32) -> impl Fn(Errno) -> Stays {
    move |error| match error {
        Errno::ADDRINUSE => Stays::Taken(what, port),
        other => Stays::Failed(what, other),
    }
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
/// programs that do so; each checks the file again. Every user may lock the folder, so the wait for
/// the lock is short.
fn in_place_of(file: &Path, bind: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let folder = file.parent().and_then(|folder| File::open(folder).ok()).ok_or(Errno::ADDRINUSE)?;
    lock(&folder)?;
    if is_left_over(file) {
        let _ = std::fs::remove_file(file);
    }
    let bound = bind();
    // Unlock explicitly: a child may have another descriptor of the lock.
    let _ = flock(&folder, FlockOperation::Unlock);
    bound
}

/// Locks a folder. Fails with `EADDRINUSE` if another program keeps its lock.
fn lock(folder: &File) -> Result<(), Errno> {
    const TRIES: u32 = 20;
    for _ in 0..TRIES {
        match retry_on_intr(|| flock(folder, FlockOperation::NonBlockingLockExclusive)) {
            Err(Errno::AGAIN) => thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
    Err(Errno::ADDRINUSE)
}
