//! Listening sockets that the process inherits, by the number that its command line names.
#![allow(unsafe_code, reason = "only this file turns a number into a descriptor")]

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};

/// Numbers that have an owner in this process.
static TAKEN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Takes over the listening socket with this number. The smallest numbers are the standard streams.
pub(crate) fn listener(number: i32) -> Result<UnixListener> {
    if number <= 2 {
        bail!("descriptor {number} is a standard stream\nhint: name an inherited listening socket from 3 on");
    }
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if taken.contains(&number) {
        bail!("descriptor {number} is named twice\nhint: give each device a socket of its own");
    }
    // SAFETY: the borrowed number is used for one system call, which fails if it is closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let listens = rustix::net::sockopt::socket_acceptconn(borrowed).map_err(io::Error::from);
    if !listens.with_context(|| format!("descriptor {number} is no inherited socket"))? {
        bail!("descriptor {number} is a socket that does not listen\nhint: call listen before the start");
    }
    taken.insert(number);
    // SAFETY: the descriptor is a listening socket, as just checked. Sockets that the process opens
    // itself do not have this number, because options are read before any is opened. `TAKEN` makes
    // sure that no other value owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC).map_err(io::Error::from)?;
    Ok(owned.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd as _;

    use super::*;

    #[test]
    fn only_a_listening_socket_is_taken_and_only_once() {
        assert!(listener(2).unwrap_err().to_string().contains("standard stream"));
        assert!(listener(100_000).unwrap_err().to_string().contains("no inherited socket"));
        let dir = std::env::temp_dir().join(format!("taut-inherited-{}", std::process::id()));
        let _ = std::fs::remove_file(&dir);
        let number = UnixListener::bind(&dir).unwrap().into_raw_fd();
        let taken = listener(number).unwrap();
        assert!(listener(number).unwrap_err().to_string().contains("twice"));
        drop(taken);
        std::fs::remove_file(&dir).unwrap();
    }
}
