//! The way to the host's service that grants channels.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getpeername, getsockname, socket_with,
    sockopt,
};
use taut_queue_pair::message::{SERVICE_CID, SERVICE_PORT};
use taut_vmci_client::{AttachRequest, NotAttached, Transport};

use crate::state::TABLE;
use crate::sys::{Name, VsockAddress};
use crate::table::Held;
use crate::waiting::{Signals, Woken, wait};

/// The service.
pub(super) enum Service {
    /// That of the host, by `AF_VSOCK`.
    Host,
    /// One for tests, at a Unix socket. It knows the connections of a VM's socket by the number in
    /// `OK <number>`, and those to the guest by the number behind the last dot of the peer's name.
    Trial(PathBuf),
}

impl Service {
    /// Tells whether a socket is of the kind that the service knows.
    pub(super) fn knows(&self, socket: BorrowedFd<'_>) -> bool {
        let family = match self {
            Self::Host => AddressFamily::VSOCK,
            Self::Trial(_) => AddressFamily::UNIX,
        };
        sockopt::socket_domain(socket) == Ok(family)
    }
}

impl Transport for Service {
    fn request(&self, stream: BorrowedFd<'_>) -> Result<AttachRequest, NotAttached> {
        let failed = |error: Errno| NotAttached::NotAStream(Some(error.into()));
        let peer = getpeername(stream).map_err(failed)?.map_or(Name::Other, Name::from);
        match (self, Name::from(getsockname(stream).map_err(failed)?), peer) {
            (Self::Host, Name::Vsock(own), Name::Vsock(peer)) => {
                Ok(AttachRequest { own_port: own.port, peer_cid: peer.cid, peer_port: peer.port })
            }
            (Self::Trial(_), _, Name::Unix(peer)) => {
                let number = peer
                    .as_ref()
                    .and_then(|path| path.extension()?.to_str()?.parse().ok())
                    .map(|number| (1, number));
                let own = || match TABLE.get(stream.as_raw_fd()) {
                    Held::Connection(connection) => Some((0, u32::from(connection.local.port()))),
                    _ => None,
                };
                let (side, number) = number.or_else(own).ok_or(NotAttached::NotAStream(None))?;
                Ok(AttachRequest { own_port: number, peer_cid: 0, peer_port: side })
            }
            _ => Err(NotAttached::NotAStream(None)),
        }
    }

    fn dial(&self, until: Instant) -> Result<OwnedFd, Errno> {
        let (family, flags) = match self {
            Self::Host => (AddressFamily::VSOCK, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC),
            Self::Trial(_) => (AddressFamily::UNIX, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC),
        };
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        let connected = match self {
            Self::Host => {
                connect(&socket, &VsockAddress { cid: SERVICE_CID, port: SERVICE_PORT, to_host: false })
            }
            Self::Trial(path) => connect(&socket, &SocketAddrUnix::new(path.as_path())?),
        };
        match connected {
            Err(Errno::INPROGRESS) => {
                match wait(&[socket.as_fd().as_raw_fd()], libc::POLLOUT, Some(until), Signals::Ignored) {
                    Woken::Failed(error) => return Err(error),
                    Woken::TimedOut => return Err(Errno::TIMEDOUT),
                    Woken::Ready | Woken::Interrupted => sockopt::socket_error(&socket)??,
                }
            }
            connected => connected?,
        }
        Ok(socket)
    }
}
