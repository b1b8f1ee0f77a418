//! A descriptor that an epoll instance watches is another file after a connect or listen of this library: it is taken out before and
//! put in again after, with the same events and data.

use std::os::fd::RawFd;

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::say::complain;
use crate::state::TABLE;
use crate::sys::at;
use crate::table::{ManyWatches, Watch};

/// Takes a descriptor out of the instance that watches it, if one does.
pub(crate) fn lift(fd: RawFd) -> Result<Option<Watch>, ManyWatches> {
    let Some(watch) = TABLE.watch(fd)? else { return Ok(None) };
    let (Ok(instance), Ok(watched)) = (at(watch.epoll), at(fd)) else { return Ok(None) };
    if epoll::delete(instance, watched).is_ok() {
        return Ok(Some(watch));
    }
    // The instance or the watch has gone without the library being told.
    TABLE.unwatched(fd, watch.epoll);
    Ok(None)
}

/// Puts it in again.
pub(crate) fn put(fd: RawFd, watch: Option<Watch>) {
    let Some(watch) = watch else { return };
    let (data, events) = (EventData::new_u64(watch.data), EventFlags::from_bits_retain(watch.events));
    let added = at(watch.epoll).and_then(|instance| epoll::add(instance, at(fd)?, data, events));
    if let Err(error) = added {
        complain!(
            "descriptor {fd} is no longer watched by the epoll instance {}: {error}\nhint: leave its address out of the map",
            watch.epoll
        );
    }
}

/// What may be asked of an instance that watches a listener: it is an epoll instance itself, which the kernel does not watch
/// exclusively.
pub(crate) fn for_listener(events: u32) -> u32 {
    events & !(libc::EPOLLEXCLUSIVE as u32)
}
