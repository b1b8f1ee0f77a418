//! Closing and duplicating descriptors. The hidden descriptor of a listener follows it.
//!
//! A child of vfork shares its parent's memory but has its own descriptors. Its operations change
//! its descriptors but not the table, which is the parent's.

use std::os::fd::RawFd;

use rustix::fs::fstat;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::listen;

use crate::hidden::{hide, release, unhide};
use crate::lookup::connection;
use crate::options::receive_buffer;
use crate::state::{TABLE, owns};
use crate::sys::at;
use crate::table::{Held, Listener};
use crate::watch;

/// Moves a hidden descriptor away from a number that the program is about to use.
pub(crate) fn make_way(number: RawFd) -> Result<(), Errno> {
    if !TABLE.is_hidden(number) || !owns() {
        return Ok(());
    }
    for fd in TABLE.numbers() {
        let Held::Listener(listener) = TABLE.get(fd) else { continue };
        if listener.vmci != Some(number) {
            continue;
        }
        let cloexec = rustix::io::fcntl_getfd(at(number)?)?.contains(FdFlags::CLOEXEC);
        let moved = hide(number, cloexec)?;
        TABLE.set(fd, Held::Listener(Listener { vmci: Some(moved), ..listener }));
        // The kernel watches numbers, not only files.
        if listener.armed {
            watch::leave(fd, number);
            watch::follow(fd, moved);
        }
    }
    unhide(number);
    Ok(())
}

/// Records that `to`, which was `before`, has become a duplicate of `from`.
pub(crate) fn duplicated(from: RawFd, to: RawFd, before: Held, cloexec: bool) -> Result<(), Errno> {
    release(before);
    let held = match TABLE.get(from) {
        Held::Connection(_) => connection(from).map_or(Held::Nothing, Held::Connection),
        Held::Listener(listener) => {
            let vmci = listener.vmci.map(|fd| hide(fd, cloexec)).transpose()?;
            Held::Listener(Listener { vmci, ..listener })
        }
        Held::Hidden | Held::Nothing => Held::Nothing,
    };
    if (held != Held::Nothing || TABLE.is_known(to)) && owns() {
        TABLE.forget(to);
        TABLE.set(to, held);
    }
    // A connect of one of them concerns the other one, too.
    TABLE.duplicated(from, to);
    Ok(())
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
    let Held::Listener(Listener { vmci: Some(vmci), .. }) = TABLE.get(fd) else { return };
    let flags = if cloexec { FdFlags::CLOEXEC } else { FdFlags::empty() };
    if let Ok(hidden) = at(vmci) {
        let _ = fcntl_setfd(hidden, flags);
    }
}

/// Forgets that the program has made a listener non-blocking, since it sets that flag now.
pub(crate) fn flag_changed(fd: RawFd) {
    if let Held::Listener(listener) = TABLE.get(fd)
        && owns()
    {
        TABLE.set(fd, Held::Listener(Listener { non_blocking: false, ..listener }));
    }
}

/// Sets the backlog of a listener's VMCI socket, when the program calls listen again.
pub(crate) fn set_backlog(fd: RawFd, listener: Listener, backlog: i32) {
    if owns() {
        TABLE.set(fd, Held::Listener(Listener { backlog, ..listener }));
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

/// Stops a listener's VMCI connections, when the program shuts it down. The caller shuts down the
/// TCP socket.
pub(crate) fn shut_down(fd: RawFd, listener: Listener) {
    if owns() {
        TABLE.set(fd, Held::Nothing);
    }
    if let Some(vmci) = listener.vmci {
        watch::leave(fd, vmci);
        unhide(vmci);
    }
}
