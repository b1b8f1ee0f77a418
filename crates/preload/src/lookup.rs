//! Looks up what a descriptor is, and checks that it still is that: a program can replace a
//! descriptor without the library noticing.

use std::os::fd::RawFd;

use rustix::fs::{FileType, fstat};
use rustix::net::sockopt;

use crate::hidden::closing;
use crate::state::TABLE;
use crate::sys::at;
use crate::table::{Connection, Held, Listener};

/// The listener of a descriptor; `None` if it is none, or if a socket replaced it without the
/// library noticing.
pub(crate) fn listener(fd: RawFd) -> Option<Listener> {
    let Held::Listener(listener) = TABLE.get(fd) else { return None };
    match at(fd).and_then(fstat) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => Some(listener),
        _ => {
            let _ = closing(fd);
            None
        }
    }
}

/// The VMCI connection of a descriptor; `None` if it is none, or no longer the same socket.
pub(crate) fn connection(fd: RawFd) -> Option<Connection> {
    let Held::Connection(connection) = TABLE.get(fd) else { return None };
    if at(fd).and_then(sockopt::socket_cookie) == Ok(connection.cookie) {
        return Some(connection);
    }
    TABLE.forget(fd);
    None
}
