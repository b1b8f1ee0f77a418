//! Descriptors that the program does not know: the TCP and VMCI sockets of its listeners.

use std::os::fd::{AsRawFd as _, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, getrlimit};

use crate::state::{TABLE, owns};
use crate::sys::{self, at};
use crate::table::{Held, Listener};

/// Hidden descriptors have at least this number, or half of the process's limit if that is less.
const HIDDEN_FROM: u64 = 960;

/// Duplicates a descriptor to a number that the program does not know.
pub(crate) fn hide(fd: RawFd, cloexec: bool) -> Result<RawFd, Errno> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let from = HIDDEN_FROM.min(limit / 2) as RawFd;
    let hidden = fcntl_dupfd_cloexec(at(fd)?, from)?;
    let number = hidden.as_raw_fd();
    if owns() && !TABLE.set(number, Held::Hidden) {
        return Err(Errno::MFILE);
    }
    if !cloexec {
        fcntl_setfd(&hidden, FdFlags::empty())?;
    }
    // From here on the descriptor is closed by its number.
    std::mem::forget(hidden);
    Ok(number)
}

/// Closes a hidden descriptor.
pub(crate) fn unhide(fd: RawFd) {
    if owns() {
        TABLE.forget(fd);
    }
    sys::close(fd);
}

/// The hidden descriptors of a listener.
pub(crate) fn hidden(listener: Listener) -> impl Iterator<Item = RawFd> {
    [Some(listener.tcp), listener.vmci].into_iter().flatten()
}

/// Closes the hidden descriptors of a descriptor that is gone.
pub(crate) fn release(held: Held) {
    let Held::Listener(listener) = held else { return };
    hidden(listener).for_each(unhide);
}

/// Prepares that the program closes a descriptor. Fails with `EBADF` for a hidden descriptor, whose
/// number the program cannot know.
pub(crate) fn closing(fd: RawFd) -> Result<(), Errno> {
    match TABLE.get(fd) {
        Held::Hidden => return Err(Errno::BADF),
        Held::Listener(listener) => {
            // The entry goes first: once the number is closed, another thread may get it.
            if owns() {
                TABLE.forget(fd);
            }
            release(Held::Listener(listener));
        }
        Held::Connection(_) | Held::Nothing => {
            if (TABLE.is_held(fd) || TABLE.watch(fd) != Ok(None)) && owns() {
                TABLE.forget(fd);
            }
        }
    }
    Ok(())
}
