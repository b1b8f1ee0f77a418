//! Closing, duplicating and passing on descriptors. The hidden descriptors of a listener follow it.
//!
//! A child of vfork shares its parent's memory but has its own descriptors. Its operations change
//! its descriptors but not the table, which is the parent's.

use std::os::fd::RawFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::listen;

use crate::hidden::{hidden, hide, release, unhide};
use crate::lookup::connection;
use crate::options::receive_buffer;
use crate::state::{TABLE, owns};
use crate::sys::{self, at};
use crate::table::{Held, Listener};
use crate::watch;

/// Moves a hidden descriptor away from a number that the program is about to use.
pub(crate) fn make_way(number: RawFd) -> Result<(), Errno> {
    if !TABLE.is_hidden(number) || !owns() {
        return Ok(());
    }
    for fd in TABLE.numbers() {
        let Held::Listener(listener) = TABLE.get(fd) else { continue };
        if !hidden(listener).any(|hidden| hidden == number) {
            continue;
        }
        let cloexec = rustix::io::fcntl_getfd(at(number)?)?.contains(FdFlags::CLOEXEC);
        let moved = hide(number, cloexec)?;
        let swap = |old: RawFd| if old == number { moved } else { old };
        let listener = Listener { tcp: swap(listener.tcp), vmci: listener.vmci.map(swap), ..listener };
        TABLE.set(fd, Held::Listener(listener));
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
            let tcp = hide(listener.tcp, cloexec)?;
            let vmci = listener.vmci.map(|fd| hide(fd, cloexec)).transpose().inspect_err(|_| unhide(tcp))?;
            Held::Listener(Listener { tcp, vmci, ..listener })
        }
        Held::Hidden | Held::Nothing => Held::Nothing,
    };
    if (held != Held::Nothing || before != Held::Nothing || TABLE.watch(to) != Ok(None)) && owns() {
        TABLE.forget(to);
        TABLE.set(to, held);
    }
    Ok(())
}

/// Sets close-on-exec of a listener's hidden descriptors.
pub(crate) fn set_cloexec(fd: RawFd, cloexec: bool) {
    let Held::Listener(listener) = TABLE.get(fd) else { return };
    let flags = if cloexec { FdFlags::CLOEXEC } else { FdFlags::empty() };
    for hidden in hidden(listener) {
        if let Ok(hidden) = at(hidden) {
            let _ = fcntl_setfd(hidden, flags);
        }
    }
}

/// Sets the backlog of a listener's VMCI socket, when the program calls listen again.
pub(crate) fn set_backlog(listener: Listener, backlog: i32) {
    if let Some(Ok(vmci)) = listener.vmci.map(at) {
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

/// Turns a listener back into its TCP socket.
pub(crate) fn make_plain(fd: RawFd, listener: Listener) -> Result<(), Errno> {
    let flags = fcntl_getfl(at(fd)?)?;
    let cloexec = rustix::io::fcntl_getfd(at(fd)?)?.contains(FdFlags::CLOEXEC);
    let watched = watch::lift(fd).map_err(|_| Errno::BUSY)?;
    let placed = sys::replace(fd, listener.tcp, cloexec);
    watch::put(fd, watched);
    placed?;
    TABLE.set(fd, Held::Nothing);
    let tcp = at(fd)?;
    fcntl_setfl(tcp, fcntl_getfl(tcp)? & !OFlags::NONBLOCK | flags & OFlags::NONBLOCK)?;
    release(Held::Listener(listener));
    Ok(())
}

/// Stops a listener's VMCI connections, when the program shuts it down. The caller shuts down the
/// TCP socket.
pub(crate) fn shut_down(fd: RawFd, listener: Listener) {
    if let Some(vmci) = listener.vmci
        && owns()
    {
        TABLE.set(fd, Held::Listener(Listener { vmci: None, ..listener }));
        unhide(vmci);
    }
}
