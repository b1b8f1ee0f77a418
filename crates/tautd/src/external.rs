//! Sockets of vhost-user front ends that taut did not start.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::fabric::message::Attachment;
use taut_api::network::{ExternalPortSpec, SocketRole};

/// Number of front ends that may wait at a socket.
const BACKLOG: i32 = 128;

/// Makes the socket for an attachment, which is not connected yet.
pub(crate) fn unconnected() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Connects `socket` to a front end, or has it listen for one. The file system of the path may not
/// answer.
pub(crate) fn attach(spec: &ExternalPortSpec, socket: &OwnedFd) -> Result<(), ApiError> {
    let path = Path::new(&spec.socket);
    match spec.role {
        SocketRole::Connect => {
            let connected = SocketAddrUnix::new(path).and_then(|address| connect_socket(socket, &address));
            connected.map_err(|error| {
                ApiError::new(
                    ErrorKind::Unavailable,
                    format!("no front end answers at `{}`", spec.socket),
                    "start the front end as the socket's server; taut connects as soon as it listens",
                )
                .because(&io::Error::from(error))
            })
        }
        SocketRole::Listen => listen_at(path, socket),
    }
}

/// Returns the kind of attachment that [`attach`] makes.
pub(crate) const fn kind(spec: &ExternalPortSpec) -> Attachment {
    match spec.role {
        SocketRole::Connect => Attachment::Connected,
        SocketRole::Listen => Attachment::Listening,
    }
}

/// Removes the socket on which taut listened.
pub(crate) fn detach(spec: &ExternalPortSpec) -> io::Result<()> {
    if spec.role == SocketRole::Connect || !is_socket(Path::new(&spec.socket)) {
        return Ok(());
    }
    std::fs::remove_file(&spec.socket)
}

/// Connects without blocking. If the server's queue is full, the caller tries again later.
pub(crate) fn connect_now(path: &Path) -> io::Result<OwnedFd> {
    connect_to(&SocketAddrUnix::new(path)?)
}

/// Connects to a socket as [`connect_now`] does.
pub(crate) fn connect_to(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket = unconnected()?;
    connect_socket(&socket, address)?;
    Ok(socket)
}

fn connect_socket(socket: &OwnedFd, address: &SocketAddrUnix) -> rustix::io::Result<()> {
    connect(socket, address)?;
    // The fabric expects a blocking descriptor.
    rustix::io::ioctl_fionbio(socket, false)
}

fn listen_at(path: &Path, socket: &OwnedFd) -> Result<(), ApiError> {
    let failed = |what: &str, hint: &str| {
        ApiError::new(ErrorKind::Unavailable, format!("cannot listen at `{}`: {what}", path.display()), hint)
    };
    if path.symlink_metadata().is_ok() {
        if !is_socket(path) {
            return Err(failed("there is a file that is not a socket", "move it away or use another path"));
        }
        if is_in_use(path) {
            return Err(failed("another program listens there", "end that program or use another path"));
        }
        let stale = std::fs::remove_file(path);
        stale.map_err(|error| {
            failed(
                "its stale socket cannot be removed",
                "see whether the folder exists and root may write to it",
            )
            .because(&error)
        })?;
    }
    let bound = SocketAddrUnix::new(path).and_then(|address| bind(socket, &address)).map_err(io::Error::from);
    let bound = bound.and_then(|()| {
        listen(socket, BACKLOG)?;
        rustix::io::ioctl_fionbio(socket, false)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
    });
    bound.map_err(|error| {
        failed("the socket cannot be made", "see whether the folder exists and root may write to it")
            .because(&error)
    })
}

/// Returns whether a program has the socket open. A stream socket that does not listen yet, or
/// whose queue is full, refuses a connection like one without a program. Connecting a datagram
/// socket tells them apart: it fails with `EPROTOTYPE` if a program has the socket open.
fn is_in_use(path: &Path) -> bool {
    let asked = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .and_then(|other| connect(other, &SocketAddrUnix::new(path)?));
    matches!(asked, Ok(()) | Err(Errno::PROTOTYPE))
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use taut_api::QueuePairs;
    use taut_api::coalescing::NicCoalescing;

    use super::*;

    fn spec(socket: &Path, role: SocketRole) -> ExternalPortSpec {
        let portgroup = "lan".parse().unwrap();
        ExternalPortSpec {
            portgroup,
            socket: socket.to_str().unwrap().into(),
            role,
            mac: None,
            offloads: false,
            queues: QueuePairs::default(),
            coalescing: NicCoalescing::HostDefault,
            trusted: false,
        }
    }

    fn attached(spec: &ExternalPortSpec) -> Result<OwnedFd, ApiError> {
        let socket = unconnected().unwrap();
        attach(spec, &socket).map(|()| socket)
    }

    #[test]
    fn listening_replaces_only_a_stale_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("port.sock");
        std::fs::write(&path, "precious").unwrap();
        let spec = spec(&path, SocketRole::Listen);
        assert!(attached(&spec).unwrap_err().to_string().contains("not a socket"));
        detach(&spec).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");

        std::fs::remove_file(&path).unwrap();
        let listening = attached(&spec).unwrap();
        assert!(attached(&spec).unwrap_err().to_string().contains("another program"));
        drop(listening);
        detach(&spec).unwrap();
        let silent =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&silent, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert!(
            attached(&spec).unwrap_err().to_string().contains("another program"),
            "the socket does not listen yet"
        );
        drop(silent);
        let _again = attached(&spec).unwrap();
        assert_eq!(kind(&spec), Attachment::Listening);
        detach(&spec).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn connecting_fails_without_a_front_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("port.sock");
        let spec = spec(&path, SocketRole::Connect);
        assert!(attached(&spec).unwrap_err().to_string().contains("port.sock"));
        let _front_end = UnixListener::bind(&path).unwrap();
        attached(&spec).unwrap();
        assert_eq!(kind(&spec), Attachment::Connected);
    }
}
