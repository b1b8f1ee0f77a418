//! Accept: takes connections from the TCP and the VMCI socket of a listener in turns.

use std::ffi::{OsStr, c_int};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags, acceptfrom_with, getsockname, sockopt};

use crate::address::{self, Sees};
use crate::gather;
use crate::listener::{hand_over, tcp_name};
use crate::map::Machine;
use crate::options::inherit;
use crate::rings;
use crate::say::{complain, tell};
use crate::state::{TABLE, map};
use crate::sys::{Name, at, option};
use crate::table::{Connection, Held, Listener, SLOTS};

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

/// Accepts one connection if there is one. `tcp` accepts from the TCP socket without waiting.
pub(crate) fn look(
    fd: RawFd,
    listener: Listener,
    flags: c_int,
    tcp: &dyn Fn() -> Result<RawFd, Errno>,
) -> Look {
    let tcp = || match tcp() {
        Ok(accepted) => {
            // The number may have been closed without the library noticing.
            let _ = rings::closing(accepted);
            Look::Tcp(accepted)
        }
        Err(Errno::AGAIN) => Look::Nothing,
        Err(error) => Look::Failed(error),
    };
    let vmci = || vmci(fd, listener, flags);
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

fn vmci(fd: RawFd, listener: Listener, flags: c_int) -> Look {
    let Some(Ok(socket)) = listener.vmci.map(at) else { return Look::Nothing };
    let flags = SocketFlags::from_bits_retain(flags as u32) & (SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
    let (accepted, from) = match acceptfrom_with(socket, flags) {
        Ok(accepted) => accepted,
        // A connection that was closed before it was accepted does not count.
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::CONNRESET | Errno::INTR) => return Look::Nothing,
        // The socket does not listen yet.
        Err(Errno::INVAL) if !listener.armed => return Look::Nothing,
        Err(error @ (Errno::BADF | Errno::NOTSOCK | Errno::INVAL)) => {
            tell!("descriptor {fd}: TCP only: its VMCI socket has gone: {error}");
            hand_over(listener);
            return Look::Nothing;
        }
        Err(error) => return Look::Failed(error),
    };
    let cookie = sockopt::socket_cookie(&accepted).unwrap_or_default();
    let here;
    let (machine, port) = if let Some(Name::Vsock(address)) = from.map(Name::from) {
        (Machine::Cid(address.cid), address.port)
    } else {
        here = getsockname(socket).ok().and_then(|name| SocketAddrUnix::try_from(name).ok());
        (of_unix_socket(here.as_ref()), address::port_of(cookie))
    };
    let number = accepted.as_raw_fd();
    let at_tcp = tcp_name(fd);
    let local = at_tcp.unwrap_or_else(|| SocketAddr::new(address::unspecified(false), 0));
    inherit(fd, number, local.is_ipv6());
    let only_v6 = option(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY).is_ok_and(|set| set != 0);
    let peer = address::of_peer(map(), machine, port, Sees::at(local.ip(), only_v6));
    let no_delay = option(fd, libc::SOL_TCP, libc::TCP_NODELAY).is_ok_and(|set| set != 0);
    let _ = rings::closing(number);
    if !TABLE.set(number, Held::Connection(Connection { cookie, peer, local, no_delay, unasked: false })) {
        complain!(
            "a VMCI connection was closed (EMFILE): descriptor {number} is beyond the table of {SLOTS}\n\
             hint: set a lower limit of open files (`ulimit -n {SLOTS}`)"
        );
        return Look::Failed(Errno::MFILE);
    }
    tell!("accept {local}: {machine} port {port} as {peer}");
    rings::begin(number);
    gather::begin(number);
    // From here on the descriptor belongs to the program.
    std::mem::forget(accepted);
    Look::Vmci(number, peer)
}

/// The VM whose guest connects through a Unix socket of this name.
fn of_unix_socket(name: Option<&SocketAddrUnix>) -> Machine<'_> {
    let path = name.and_then(SocketAddrUnix::path_bytes).map(|path| Path::new(OsStr::from_bytes(path)));
    Machine::Unix(Path::new(path.and_then(of_unix_name).map_or("", |(vm, _)| vm)))
}

/// Splits `<path>_<port>` into the path of the VM's socket and the port.
pub(crate) fn of_unix_name(path: &Path) -> Option<(&str, u32)> {
    let (vm, port) = path.to_str()?.rsplit_once('_')?;
    Some((vm, port.parse().ok()?))
}
