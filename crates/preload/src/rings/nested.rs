//! Epoll instances that are watched themselves, by `poll`, `select` or another instance. The kernel
//! says whether such an instance has events, and it does not know of rings. So the connections that
//! it watches go by packets.

use std::os::fd::RawFd;

use super::leave::leave;
use super::settings::is_on;
use crate::state::TABLE;

/// Tells whether descriptors are among these for which [`watched`] has something to do.
pub(crate) fn has_instance(mut fds: impl Iterator<Item = RawFd>) -> bool {
    fds.any(|fd| TABLE.is_first_level(fd))
}

/// Records that the program waits for these descriptors.
pub(crate) fn watched(fds: impl Iterator<Item = RawFd>) {
    for fd in fds.filter(|fd| is_on() && TABLE.is_first_level(*fd)) {
        TABLE.set_nested(fd);
        TABLE.rings_watched(fd).for_each(leave);
    }
}

/// Tells whether an instance is watched itself, as far as is known.
pub(super) fn is_nested(instance: RawFd) -> bool {
    TABLE.is_nested(instance) || TABLE.watch(instance) != Ok(None)
}
