//! Closing and duplicating descriptors. The hidden descriptor of a listener follows it.
//!
//! A child of vfork shares its parent's memory but has its own descriptors. Its operations change
//! its descriptors but not the table, which is the parent's.

use std::os::fd::RawFd;

use rustix::fs::fstat;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{Shutdown, listen};

use crate::hidden::{hide, is_there, lost, release, unhide};
use crate::listener::stays_tcp;
use crate::lookup::{connection, listener};
use crate::options::receive_buffer;
use crate::state::{TABLE, owns};
use crate::sys::at;
use crate::table::{Held, Listener, State};
use crate::tcp_accept::undisturbed;
use crate::{rings, watch};

/// Moves a hidden descriptor away from a number that the program is about to use.
pub(crate) fn make_way(number: RawFd) -> Result<(), Errno> {
    if !TABLE.is_hidden(number) || !owns() {
        return Ok(());
    }
    if !is_there(number) {
        lost(number);
        return Ok(());
    }
    for fd in TABLE.numbers() {
        if TABLE.control(fd) == Some(number) {
            let moved = hide(number, true)?;
            TABLE.set_control(fd, Some(moved));
            break;
        }
        let Held::Listener(listener) = TABLE.get(fd) else { continue };
        if listener.vmci != Some(number) {
            continue;
        }
        let cloexec = rustix::io::fcntl_getfd(at(number)?)?.contains(FdFlags::CLOEXEC);
        let moved = hide(number, cloexec)?;
        let before = TABLE.change(fd, listener.cookie, |state| match state.vmci {
            Some(vmci) if vmci == number => State { vmci: Some(moved), ..state },
            _ => state,
        });
        match before {
            // The kernel watches numbers, not only files.
            Some(State { vmci: Some(vmci), armed, .. }) if vmci == number => {
                watch::leave(fd, number);
                if armed && let Err(error) = watch::follow(fd, moved) {
                    stays_tcp(listener, error);
                }
            }
            // Another thread has closed the listener.
            _ => unhide(moved),
        }
    }
    unhide(number);
    Ok(())
}

/// Records that `to` has become a duplicate of `from`.
pub(crate) fn duplicated(from: RawFd, to: RawFd, cloexec: bool) {
    // Either the duplicate has closed it, or the program has without the library noticing.
    let _ = rings::closing(to);
    if !owns() {
        return;
    }
    let held = match TABLE.get(from) {
        Held::Connection(_) => connection(from).map_or(Held::Nothing, Held::Connection),
        Held::Listener(_) => listener(from).map_or(Held::Nothing, |listener| {
            // Without a descriptor more, this number accepts TCP connections only.
            let vmci = listener.vmci.and_then(|fd| hide(fd, cloexec).ok());
            Held::Listener(Listener { vmci, armed: listener.armed && vmci.is_some(), ..listener })
        }),
        Held::Hidden(_) | Held::Nothing => Held::Nothing,
    };
    if held != Held::Nothing {
        TABLE.set(to, held);
    }
    rings::duplicated(from, to);
    // A connect of one of them concerns the other one, too.
    TABLE.duplicated(from, to);
}

/// The other numbers of this process's table that are the same socket.
pub(crate) fn duplicates(fd: RawFd) -> Vec<RawFd> {
    if !TABLE.is_duplicated(fd) {
        return Vec::new();
    }
    let inode = |number| at(number).and_then(fstat).map(|stat| (stat.st_dev, stat.st_ino));
    let Ok(this) = inode(fd) else { return Vec::new() };
    let is_one = |number: &RawFd| *number != fd && TABLE.is_duplicated(*number) && inode(*number) == Ok(this);
    TABLE.numbers().filter(is_one).collect()
}

/// Sets close-on-exec of a listener's hidden descriptor.
pub(crate) fn set_cloexec(fd: RawFd, cloexec: bool) {
    let Some(Listener { vmci: Some(vmci), .. }) = listener(fd) else { return };
    let flags = if cloexec { FdFlags::CLOEXEC } else { FdFlags::empty() };
    if let Ok(hidden) = at(vmci) {
        let _ = fcntl_setfd(hidden, flags);
    }
}

/// Runs a call of the program that reads the flags of a listener, or with `changes` sets them. No
/// accept changes them at the same time. Calls for other files run as they are: the lock of
/// [`undisturbed`] would end the program's own locks on them.
pub(crate) fn with_flags(fd: RawFd, changes: bool, call: impl Fn() -> i32) -> i32 {
    let Some(listener) = listener(fd) else { return call() };
    let result = undisturbed(fd, || Ok(call())).unwrap_or_else(|_| call());
    if changes && result >= 0 && owns() {
        TABLE.change(fd, listener.cookie, |state| State { non_blocking: false, ..state });
    }
    result
}

/// Sets the backlog of a listener's VMCI socket, when the program calls listen again.
pub(crate) fn set_backlog(fd: RawFd, listener: Listener, backlog: i32) {
    if owns() {
        TABLE.set_backlog(fd, backlog);
    }
    if listener.armed
        && let Some(Ok(vmci)) = listener.vmci.map(at)
    {
        let _ = listen(vmci, backlog);
    }
}

/// Sets the receive buffer of a listener's VMCI socket (`SO_RCVBUF`), which its connections
/// inherit.
pub(crate) fn set_receive_buffer(listener: Listener, size: i32) {
    if let Some(vmci) = listener.vmci {
        receive_buffer(vmci, size);
    }
}

/// Stops a listener's VMCI connections at all its numbers, when the program shuts it down. The
/// caller shuts down the TCP socket.
pub(crate) fn shut_down(fd: RawFd, listener: Listener) {
    // Processes that share a Unix socket accept no more from it either. `AF_VSOCK` has no such call
    // for a listening socket.
    if let Some(Ok(vmci)) = listener.vmci.map(at) {
        let _ = rustix::net::shutdown(vmci, Shutdown::Read);
    }
    if !owns() {
        release(fd, listener);
        return;
    }
    for fd in TABLE.numbers() {
        let Held::Listener(other) = TABLE.get(fd) else { continue };
        if other.cookie != listener.cookie {
            continue;
        }
        if let Some(State { vmci: Some(vmci), .. }) = TABLE.end(fd, other.cookie) {
            watch::leave(fd, vmci);
            unhide(vmci);
        }
    }
}
