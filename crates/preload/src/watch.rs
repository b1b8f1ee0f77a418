//! Epoll watches of descriptors that a connect or listen of this library replaces by another file.
//! The watch is removed before and added again afterwards, with the same events and data.

use std::os::fd::RawFd;

use rustix::event::epoll::{self, EventData, EventFlags};

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
    let (data, events) = (EventData::new_u64(watch.data), EventFlags::from_bits_retain(watch.events));
    let added = at(watch.epoll).and_then(|instance| epoll::add(instance, at(fd)?, data, events));
    if let Err(error) = added {
        complain!(
            "descriptor {fd} is no longer watched by the epoll instance {}: {error}\nhint: remove its address from the map",
            watch.epoll
        );
    }
}

/// The events that may be watched at a listener. It is an epoll instance itself, which the kernel
/// cannot watch exclusively.
pub(crate) fn for_listener(events: u32) -> u32 {
    events & !(libc::EPOLLEXCLUSIVE as u32)
}
