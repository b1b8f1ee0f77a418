//! Unix sockets on which the daemon listens for the fabric.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Listens on a socket at `path` for the owner only. The socket atomically replaces an existing
/// one, so that a client always finds the old or the new one.
pub(crate) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let new = path.with_extension("new");
    // A killed daemon may have left the file.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&new, path)?;
    Ok(listener.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_only_the_owner_may_connect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vmci.sock");
        drop(UnixListener::bind(&path).unwrap());
        std::fs::write(dir.path().join("vmci.new"), "left over").unwrap();
        assert!(UnixStream::connect(&path).is_err());
        let listener = UnixListener::from(listen(&path).unwrap());
        let client = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        drop(client);
    }
}
