//! Unix sockets on which the daemon, or a process that it starts, listens.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Listens on a socket at `path` for the owner only. The socket atomically replaces an existing
/// one, so that a client always finds the old or the new one.
pub(crate) fn listen_at(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let new = path.with_extension("new");
    // A killed daemon may have left the file.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(&new)?)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    listen(&socket, BACKLOG)?;
    fs::rename(&new, path)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_only_the_owner_may_connect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmci.sock");
        drop(UnixListener::bind(&path).unwrap());
        std::fs::write(dir.path().join("vmci.new"), "left over").unwrap();
        assert!(UnixStream::connect(&path).is_err());
        let listener = UnixListener::from(listen_at(&path, SocketType::STREAM).unwrap());
        let client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        drop(client);
    }
}
