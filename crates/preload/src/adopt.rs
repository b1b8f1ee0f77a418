//! VMCI sockets that another program or process made, and that this process inherits by exec or
//! receives in a message. They are not in the table; the kernel tells what they are.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;

use rustix::fs::{FileType, fstat};
use rustix::net::{getpeername, getsockname, sockopt};

use crate::address;
use crate::listener::{COOKIE, of_unix_name};
use crate::map::Target;
use crate::options::MARK;
use crate::state::{TABLE, map};
use crate::sys::{Name, at, option};
use crate::table::{Connection, Held, Listener};

/// Finds the listeners that this process inherited. Called once, when the library is loaded.
pub(crate) fn listeners() {
    let numbers = numbers();
    for fd in &numbers {
        let Some(listener) = listener(*fd, &numbers) else { continue };
        for hidden in [Some(listener.tcp), listener.vmci].into_iter().flatten() {
            TABLE.set(hidden, Held::Hidden);
        }
        TABLE.set(*fd, Held::Listener(listener));
    }
}

/// The descriptors of this process.
fn numbers() -> Vec<RawFd> {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// One of the two watches in the epoll instance of a listener, read from its line in `fdinfo`
/// (`man 5 proc_pid_fdinfo`).
#[derive(Debug, PartialEq, Eq)]
struct Inner {
    data: u64,
    inode: u64,
}

impl Inner {
    fn read(line: &str) -> Option<Self> {
        let number = |after: &str| {
            let text = line.split_once(after)?.1.split_whitespace().next()?;
            u64::from_str_radix(text, 16).ok()
        };
        Some(Self { data: number("data:")?, inode: number(" ino:")? })
    }
}

/// The listener with this epoll instance; `None` if it is none or one of its sockets is missing.
fn listener(fd: RawFd, numbers: &[RawFd]) -> Option<Listener> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if link.as_os_str() != "anon_inode:[eventpoll]" {
        return None;
    }
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let inner: Vec<_> =
        info.lines().filter(|line| line.starts_with("tfd:")).filter_map(Inner::read).collect();
    if inner.is_empty() || inner.iter().any(|inner| inner.data & !0xffff_ffff != COOKIE) {
        return None;
    }
    let (mut tcp, mut vmci) = (None, None);
    for inner in inner {
        // Several descriptors may be the same socket. Skip those that already belong to another
        // listener.
        let mut same = numbers.iter().copied().filter(|number| inode(*number) == Some(inner.inode));
        let free = same.find(|number| !TABLE.is_held(*number));
        match free.map(|number| (number, option(number, libc::SOL_SOCKET, libc::SO_PROTOCOL))) {
            Some((number, Ok(libc::IPPROTO_TCP))) => tcp = Some(number),
            Some((number, Ok(_))) => vmci = Some(number),
            _ => {}
        }
    }
    Some(Listener { tcp: tcp?, vmci, port: 0 })
}

fn inode(fd: RawFd) -> Option<u64> {
    let stat = fstat(at(fd).ok()?).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::Socket).then_some(stat.st_ino)
}

/// Adds a VMCI connection to the table that another program made. Such a connection has the
/// library's mark.
pub(crate) fn connection(fd: RawFd) -> Option<Connection> {
    if TABLE.is_held(fd) || option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY) != Ok(MARK) {
        return None;
    }
    let socket = at(fd).ok()?;
    let peer = getpeername(socket).ok().flatten().map_or(Name::Other, Name::from);
    let local = getsockname(socket).map_or(Name::Other, Name::from);
    let (target, peer_port, local_port) = match (peer, local) {
        (Name::Vsock(peer), Name::Vsock(local)) => (Target::Cid(peer.cid), peer.port, local.port),
        // Connected to a VM's socket. The request had the port, which is unknown here.
        (Name::Unix(Some(vm)), _) => (Target::Unix(vm), 0, 0),
        // Accepted at `<VM's socket>_<port>`.
        (_, Name::Unix(Some(here))) => {
            let (vm, port) = of_unix_name(&here)?;
            (Target::Unix(PathBuf::from(vm)), 0, port)
        }
        _ => return None,
    };
    // An IPv6 socket only if the machine has no IPv4 address.
    let known = |v6| map().and_then(|map| map.address_of(&target, v6));
    let v6 = known(false).is_none() && known(true).is_some();
    let connection = Connection {
        cookie: sockopt::socket_cookie(socket).ok()?,
        peer: address::of_peer(map(), &target, peer_port, v6),
        local: SocketAddr::new(address::unspecified(v6), address::tcp_port(local_port)),
        no_delay: false,
        unasked: false,
    };
    TABLE.set(fd, Held::Connection(connection));
    Some(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_fdinfo_are_read() {
        let line = "tfd:      900 events:       19 data: 7461757400000384  pos:0 ino:8422f4 sdev:9";
        assert_eq!(Inner::read(line), Some(Inner { data: COOKIE + 900, inode: 0x84_22f4 }));
        assert_eq!(Inner::read("tfd: 3 events: 19 data:"), None);
        assert_eq!(Inner::read("tfd: 3 events: 19 data: 3"), None);
    }
}
