//! Epoll watches. A connect of this library replaces a watched socket: its watch is removed before
//! and added again afterwards, with the same events and data. The VMCI socket of a listener is
//! watched together with the program's TCP socket.

use std::ffi::c_int;
use std::os::fd::RawFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::hidden::is_there;
use crate::say::complain;
use crate::state::TABLE;
use crate::sys::at;
use crate::table::{ManyWatches, Watch};

/// Removes a descriptor from the epoll instance that watches it, if there is one.
pub(crate) fn lift(fd: RawFd) -> Result<Option<Watch>, ManyWatches> {
    let Some(watch) = TABLE.watch(fd)? else { return Ok(None) };
    let (Ok(instance), Ok(watched)) = (at(watch.epoll), at(fd)) else { return Ok(None) };
    if epoll::delete(instance, watched).is_ok() {
        return Ok(Some(watch));
    }
    // The instance or the watch was removed without the library noticing.
    TABLE.unwatched(fd, watch.epoll);
    Ok(None)
}

/// Adds the watch again.
pub(crate) fn put(fd: RawFd, watch: Option<Watch>) {
    let Some(watch) = watch else { return };
    if let Err(error) = add(fd, watch) {
        complain!(
            "descriptor {fd} is no longer watched by the epoll instance {}: {error}\nhint: remove its address from the map",
            watch.epoll
        );
    }
}

fn add(fd: RawFd, watch: Watch) -> Result<(), Errno> {
    let (data, events) = (EventData::new_u64(watch.data), EventFlags::from_bits_retain(watch.events));
    epoll::add(at(watch.epoll)?, at(fd)?, data, events)
}

/// Tells whether a watch waits for connections.
pub(crate) fn reads(events: u32) -> bool {
    events & (libc::EPOLLIN | libc::EPOLLRDNORM).cast_unsigned() != 0
}

/// Watches the VMCI socket of a listener as its TCP socket is watched.
pub(crate) fn follow(fd: RawFd, vmci: RawFd) -> Result<(), Errno> {
    let Ok(Some(watch)) = TABLE.watch(fd) else { return Ok(()) };
    if !reads(watch.events) {
        return Ok(());
    }
    if !is_watched(fd, watch.epoll) {
        TABLE.unwatched(fd, watch.epoll);
        return Ok(());
    }
    match add(vmci, watch) {
        Err(Errno::EXIST) => Ok(()),
        result => result,
    }
}

/// Tells whether an epoll instance watches a descriptor. The number may have become another
/// instance without the library noticing. The kernel tells by refusing a second watch.
fn is_watched(fd: RawFd, epoll: RawFd) -> bool {
    let (Ok(instance), Ok(watched)) = (at(epoll), at(fd)) else { return false };
    match epoll::add(instance, watched, EventData::new_u64(0), EventFlags::empty()) {
        Ok(()) => {
            let _ = epoll::delete(instance, watched);
            false
        }
        Err(error) => error == Errno::EXIST,
    }
}

/// Ends [`follow`], before the number of the VMCI socket is closed. Another process may have the
/// same socket, and then the kernel would continue to watch it.
pub(crate) fn leave(fd: RawFd, vmci: RawFd) {
    if let Ok(Some(watch)) = TABLE.watch(fd)
        && is_there(vmci)
    {
        let _ = alike(libc::EPOLL_CTL_DEL, watch.epoll, vmci, None);
    }
}

/// Does for the VMCI socket of a listener what the program did for the TCP socket with an epoll
/// instance. `watch` has the new events and data, except for `EPOLL_CTL_DEL`.
pub(crate) fn alike(operation: c_int, epoll: RawFd, vmci: RawFd, watch: Option<Watch>) -> Result<(), Errno> {
    let (instance, socket) = (at(epoll)?, at(vmci)?);
    let Some(watch) = watch else {
        let _ = epoll::delete(instance, socket);
        return Ok(());
    };
    let (data, events) = (EventData::new_u64(watch.data), EventFlags::from_bits_retain(watch.events));
    if operation == libc::EPOLL_CTL_MOD && epoll::modify(instance, socket, data, events).is_ok() {
        return Ok(());
    }
    match epoll::add(instance, socket, data, events) {
        // [`follow`] has added it.
        Err(Errno::EXIST) => Ok(()),
        result => result,
    }
}
