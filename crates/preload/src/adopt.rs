//! VMCI sockets that another program or process made, and that this process inherits by exec or
//! receives in a message. They are not in the table; the kernel tells what they are.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;

use rustix::net::{getpeername, getsockname, sockopt};

use crate::accept::of_unix_name;
use crate::address::{self, Sees};
use crate::listener::{attach, inherited, is_listening};
use crate::map::{Map, Target};
use crate::options::marked_family;
use crate::say::tell;
use crate::state::{TABLE, map, owns};
use crate::sys::{Name, at};
use crate::table::{Connection, Held};

/// Finds the listeners that this process inherited. Called once, when the library is loaded.
pub(crate) fn listeners(map: &Map) {
    let numbers = numbers();
    let listening: Vec<_> = numbers.iter().copied().filter(|fd| is_listening(*fd)).collect();
    // First those whose VMCI sockets were inherited, too.
    for fd in &listening {
        if let Some(listener) = inherited(*fd, &numbers, map) {
            if let Some(vmci) = listener.vmci
                && let Ok(cookie) = at(vmci).and_then(sockopt::socket_cookie)
            {
                TABLE.set(vmci, Held::Hidden(cookie));
            }
            TABLE.set(*fd, Held::Listener(listener));
        }
    }
    for fd in listening {
        listener(fd, map);
    }
}

/// Gives a listening socket that another program or process made its VMCI socket, if the map names
/// it.
pub(crate) fn listener(fd: RawFd, map: &Map) {
    if TABLE.is_held(fd) || !is_listening(fd) {
        return;
    }
    match attach(fd, libc::SOMAXCONN, map) {
        Ok(bound) => tell!("listen {bound}: TCP and VMCI"),
        Err((bound, why)) => tell!("listen {bound}: TCP only: {why}"),
    }
}

/// The descriptors of this process.
fn numbers() -> Vec<RawFd> {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Examines a descriptor that is not in the table. Returns the VMCI connection that it is, made by
/// another program or duplicated to a number beyond the table. Such a connection has the library's
/// mark. If there is room, the table has it afterwards.
pub(crate) fn connection(fd: RawFd) -> Option<Connection> {
    if TABLE.is_held(fd) {
        return None;
    }
    let v6 = marked_family(fd)?;
    let socket = at(fd).ok()?;
    let cookie = sockopt::socket_cookie(socket).ok()?;
    let peer = getpeername(socket).ok().flatten().map_or(Name::Other, Name::from);
    let local = getsockname(socket).map_or(Name::Other, Name::from);
    let (target, peer_port, local_port) = match (peer, local) {
        (Name::Vsock(peer), Name::Vsock(local)) => (Target::Cid(peer.cid), peer.port, local.port),
        // Connected to a VM's socket. The request had the port, which is unknown here.
        (Name::Unix(Some(vm)), _) => (Target::Unix(vm), 0, address::port_of(cookie)),
        // Accepted at `<VM's socket>_<port>`.
        (_, Name::Unix(Some(here))) => {
            let (vm, port) = of_unix_name(&here)?;
            (Target::Unix(PathBuf::from(vm)), address::port_of(cookie), port)
        }
        _ => return None,
    };
    // The address family that this end or the other one used to connect.
    let family = address::carried_family(local_port).or_else(|| address::carried_family(peer_port));
    let sees = match (v6, family) {
        (false, _) => Sees::V4,
        (true, Some(true)) => Sees::V6,
        (true, Some(false)) => Sees::MappedV4,
        (true, None) => Sees::Both,
    };
    let connection = Connection {
        cookie,
        peer: address::of_peer(map(), target.machine(), peer_port, sees),
        local: SocketAddr::new(address::unspecified(v6), address::tcp_port(local_port)),
        no_delay: false,
        unasked: false,
    };
    if owns() {
        TABLE.set(fd, Held::Connection(connection));
    }
    Some(connection)
}
