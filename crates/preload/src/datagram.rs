//! Datagram sockets of `AF_VSOCK`, for which Linux has no virtio driver (decision 0045).
//!
//! The program gets one end of a pair of Unix sockets that keep the boundaries of messages, so
//! `poll`, `epoll`, timeouts, non-blocking calls, duplicates and forks work as for any socket. A
//! thread, the carrier, has the other end. It sends each datagram on a stream of `AF_VSOCK` to the
//! carrier of the destination, which passes it to the program there.
//!
//! Between program and carrier, each message begins with the [`Address`] of the other machine: the
//! destination, or the source. [`crate::hooks`] adds and removes it.
//!
//! - `frame`: the form of datagrams on a stream.
//! - `slots`: the sockets of this process, without locks.
//! - `peer`: a stream to or from another carrier.
//! - `carrier`: the thread.
//! - `lifecycle`: starts these threads, also in forked children, and waits for them at the end.

mod carrier;
mod frame;
mod lifecycle;
mod peer;
mod slots;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind as bind_socket, listen, socket_with, socketpair, sockopt,
};

pub(crate) use frame::{HEADER, MAX_DATAGRAM};
#[cfg(test)]
pub(crate) use lifecycle::inherited;
pub(crate) use lifecycle::{forked, may_be_inherited, revive_all};
pub(crate) use slots::Slot;

use crate::hidden::{hide, unhide};
use crate::say::{complain, tell};
use crate::sys::{VsockAddress, local_cid};

/// Streams to this port and the next 2²⁴ carry datagrams for ports from 0 on.
const FIRST_STREAM_PORT: u32 = 0x5400_0000;
/// Number of ports of datagram sockets.
const PORTS: u32 = 1 << 24;
/// Ports from here on are given to sockets that are not bound.
const FIRST_OWN: u32 = 1 << 23;
/// Ports below this one are for root.
const FIRST_FREE: u32 = 1024;
/// Connections that wait for the carrier.
const BACKLOG: i32 = 64;

/// The address of a datagram socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// Context ID of the machine.
    pub(crate) cid: u32,
    /// Port.
    pub(crate) port: u32,
}

impl Address {
    /// Context ID that stands for any of this machine's (`VMADDR_CID_ANY`).
    pub(crate) const ANY_CID: u32 = u32::MAX;
    /// Port that stands for a free one (`VMADDR_PORT_ANY`).
    pub(crate) const ANY_PORT: u32 = u32::MAX;
    /// Context IDs up to this one are no VMs.
    const LAST_SPECIAL: u32 = 2;
    /// Context ID by which a machine reaches itself (`VMADDR_CID_LOCAL`).
    const LOCAL: u32 = 1;

    /// The address as the message between program and carrier begins with it.
    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        (u64::from(self.port) << 32 | u64::from(self.cid)).to_le_bytes()
    }

    /// Reads what [`Address::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: [u8; HEADER]) -> Self {
        let number = u64::from_le_bytes(bytes);
        Self { cid: number as u32, port: (number >> 32) as u32 }
    }

    /// The stream socket of the carrier there; an error says why there is none.
    fn stream(self) -> Result<VsockAddress, Errno> {
        if self.cid <= Self::LAST_SPECIAL && self.cid != Self::LOCAL {
            // The host has no library that could take it.
            return Err(Errno::HOSTUNREACH);
        }
        if self.port >= PORTS || self.cid == Self::ANY_CID {
            return Err(Errno::ADDRNOTAVAIL);
        }
        Ok(VsockAddress {
            cid: self.cid,
            port: FIRST_STREAM_PORT + self.port,
            to_host: self.cid != Self::LOCAL,
        })
    }
}

/// Returns the datagram socket that a descriptor is, if it is one. It has a carrier if it is bound.
pub(crate) fn find(fd: RawFd) -> Option<&'static Slot> {
    slots::find(fd).inspect(|slot| lifecycle::revive(slot))
}

/// Opens a datagram socket. `non_blocking` and `cloexec` are the program's flags.
pub(crate) fn open(non_blocking: bool, cloexec: bool) -> Result<RawFd, Errno> {
    let (program_end, carrier_end) = pair()?;
    if non_blocking {
        fcntl_setfl(&program_end, OFlags::NONBLOCK)?;
    }
    lifecycle::free_closed_unbound();
    let carrier_end = hide(carrier_end.as_raw_fd(), true)?;
    let Some(_) = slots::claim(sockopt::socket_cookie(&program_end)?, carrier_end) else {
        unhide(carrier_end);
        complain!("socket: {} datagram sockets are open, the most of a process", slots::MOST);
        return Err(Errno::MFILE);
    };
    lifecycle::prepare();
    if !cloexec {
        fcntl_setfd(&program_end, FdFlags::empty())?;
    }
    tell!("socket: a datagram socket of AF_VSOCK, carried by streams");
    Ok(program_end.into_raw_fd())
}

/// Opens a pair of sockets: the program's end, and the carrier's, which does not block.
fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (program_end, carrier_end) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    fcntl_setfl(&carrier_end, OFlags::NONBLOCK)?;
    enlarge(&program_end)?;
    enlarge(&carrier_end)?;
    Ok((program_end, carrier_end))
}

/// Makes the send buffer of a socket large enough for the longest datagram, since the system's
/// default (`net.core.wmem_default`) may be less. Only `net.core.wmem_max` limits it.
fn enlarge(socket: &OwnedFd) -> Result<(), Errno> {
    /// Linux's usual default.
    const LEAST: usize = 208 << 10;
    if sockopt::socket_send_buffer_size(socket)? < LEAST {
        // The kernel doubles the number, for its own use.
        sockopt::set_socket_send_buffer_size(socket, LEAST / 2)?;
    }
    Ok(())
}

/// Binds a socket and starts its carrier.
pub(crate) fn bind(slot: &'static Slot, to: Address) -> Result<(), Errno> {
    let ours = [Address::ANY_CID, Address::LOCAL, local_cid().unwrap_or(Address::ANY_CID)];
    if !ours.contains(&to.cid) {
        return Err(Errno::ADDRNOTAVAIL);
    }
    if slot.port().is_some() {
        return Err(Errno::INVAL);
    }
    let (port, listener) = match to.port {
        Address::ANY_PORT => any_port()?,
        PORTS.. => return Err(Errno::ADDRNOTAVAIL),
        ..FIRST_FREE if !rustix::process::geteuid().is_root() => return Err(Errno::ACCESS),
        port => (port, listen_at(port)?),
    };
    let hidden = hide(listener.as_raw_fd(), true)?;
    if !slot.bind(port, hidden) {
        // Another thread was first.
        unhide(hidden);
        return Err(Errno::INVAL);
    }
    lifecycle::start(slot).inspect_err(|error| {
        complain!("bind: the thread that carries datagrams cannot be started: {error}");
        slot.unbind();
        unhide(hidden);
    })
}

/// Binds a socket to any port, unless it is bound.
pub(crate) fn bind_if_needed(slot: &'static Slot) -> Result<(), Errno> {
    if slot.port().is_some() {
        return Ok(());
    }
    match bind(slot, Address { cid: Address::ANY_CID, port: Address::ANY_PORT }) {
        // Another thread was first.
        Err(Errno::INVAL) => Ok(()),
        result => result,
    }
}

/// Sets the destination of sends without an address; `None` for none. Datagrams from others are
/// dropped from now on.
pub(crate) fn connect(slot: &'static Slot, to: Option<Address>) -> Result<(), Errno> {
    if let Some(to) = to {
        to.stream()?;
        bind_if_needed(slot)?;
    }
    slot.set_peer(to);
    Ok(())
}

/// Checks that a datagram of this length can be sent to this address, and returns the address.
pub(crate) fn destination(slot: &'static Slot, to: Option<Address>, len: usize) -> Result<Address, Errno> {
    let to = to.or_else(|| slot.peer()).ok_or(Errno::DESTADDRREQ)?;
    to.stream()?;
    if len > MAX_DATAGRAM {
        return Err(Errno::MSGSIZE);
    }
    bind_if_needed(slot)?;
    Ok(to)
}

/// The address of a socket.
pub(crate) fn local(slot: &'static Slot) -> Address {
    let cid = local_cid().unwrap_or(Address::ANY_CID);
    Address { cid, port: slot.port().unwrap_or(Address::ANY_PORT) }
}

/// Finds a free port. The kernel counts up from a random one, too.
fn any_port() -> Result<(u32, OwnedFd), Errno> {
    const TRIES: u32 = 100;
    let first = RandomState::new().build_hasher().finish() as u32;
    for offset in 0..TRIES {
        let port = FIRST_OWN + first.wrapping_add(offset) % (PORTS - FIRST_OWN);
        match listen_at(port) {
            Err(Errno::ADDRINUSE) => {}
            result => return result.map(|listener| (port, listener)),
        }
    }
    Err(Errno::ADDRINUSE)
}

fn listen_at(port: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)?;
    let anywhere = VsockAddress { cid: Address::ANY_CID, port: FIRST_STREAM_PORT + port, to_host: false };
    bind_socket(&socket, &anywhere)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use rustix::net::{SendFlags, send};

    use super::*;

    #[test]
    fn both_ends_of_a_pair_take_the_longest_datagram_whatever_the_default_is() {
        let (program_end, carrier_end) = pair().unwrap();
        let longest = vec![0; HEADER + MAX_DATAGRAM];
        for socket in [&program_end, &carrier_end] {
            send(socket, &longest, SendFlags::DONTWAIT).unwrap();
            sockopt::set_socket_send_buffer_size(socket, 4096).unwrap();
            assert_eq!(send(socket, &longest, SendFlags::DONTWAIT), Err(Errno::MSGSIZE));
            enlarge(socket).unwrap();
            send(socket, &longest, SendFlags::DONTWAIT).unwrap();
        }
    }
}
