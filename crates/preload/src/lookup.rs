//! Looks up what a descriptor is, and checks that it still is that: a program can replace a
//! descriptor without the library noticing.

use std::os::fd::RawFd;

use crate::hidden::{is_there, lost, release};
use crate::state::{TABLE, owns};
use crate::sys::is_socket;
use crate::table::{Connection, Held, Listener};

/// The listener of a descriptor; `None` if it is none, or no longer the same socket. Its VMCI
/// socket is there.
pub(crate) fn listener(fd: RawFd) -> Option<Listener> {
    let Held::Listener(listener) = TABLE.get(fd) else { return None };
    if is_socket(fd, listener.cookie) == Some(false) {
        // Removes the entry only: the number's watch may belong to the file that has the number
        // now.
        release(fd, listener);
        return None;
    }
    match listener.vmci {
        Some(vmci) if !is_there(vmci) => {
            lost(vmci);
            Some(Listener { vmci: None, armed: false, ..listener })
        }
        _ => Some(listener),
    }
}

/// The VMCI connection of a descriptor; `None` if it is none, or no longer the same socket.
pub(crate) fn connection(fd: RawFd) -> Option<Connection> {
    let Held::Connection(connection) = TABLE.get(fd) else { return None };
    if is_socket(fd, connection.cookie) != Some(false) {
        return Some(connection);
    }
    if owns() {
        // Removes the entry only: the number's watch may belong to the file that has the number
        // now.
        TABLE.set(fd, Held::Nothing);
    }
    None
}
