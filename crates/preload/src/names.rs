//! The results of `getpeername` and `getsockname` for a VMCI connection: the TCP addresses that the
//! program expects.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use rustix::net::getsockname;

use crate::address::{made_up, shown, towards};
use crate::lookup::connection;
use crate::map::HOST_CID;
use crate::state::{TABLE, map, owns};
use crate::sys::{Name, at};
use crate::table::Connection;

/// The address of the peer, if this is a VMCI connection.
pub(crate) fn peer(fd: RawFd) -> Option<SocketAddr> {
    connection(fd).map(|connection| connection.peer)
}

/// The local address, if this is a VMCI connection. If the socket was not bound, it is the address
/// in the `local` line of the map, or the one that TCP would use.
pub(crate) fn local(fd: RawFd) -> Option<SocketAddr> {
    connection(fd).map(|connection| local_of(fd, connection))
}

/// The local address of this VMCI connection.
pub(crate) fn local_of(fd: RawFd, connection: Connection) -> SocketAddr {
    if !connection.local.ip().is_unspecified() {
        return connection.local;
    }
    let (peer, v6) = (connection.peer.ip().to_canonical(), connection.peer.is_ipv6());
    let chosen =
        map().and_then(|map| map.local(peer)).or_else(|| towards(peer)).filter(|ip| v6 || ip.is_ipv4());
    let ip = chosen.unwrap_or_else(|| IpAddr::V4(made_up(own_cid(fd))));
    let local = SocketAddr::new(shown(ip, v6), connection.local.port());
    if owns() {
        TABLE.set_local(fd, connection.cookie, local);
    }
    local
}

/// This machine's context ID at its end of a connection. Connections by a Unix socket are the
/// host's.
fn own_cid(fd: RawFd) -> u32 {
    match at(fd).and_then(getsockname).map(Name::from) {
        Ok(Name::Vsock(address)) => address.cid,
        _ => HOST_CID,
    }
}
