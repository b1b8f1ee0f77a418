//! Children of vfork that close connections.
//!
//! The functions that close or replace a descriptor keep the table right, so that data calls need
//! no system call to find out what a number is. A child of vfork uses its parent's memory, and so
//! it cannot change the table when it closes a connection. From then on until it has become another
//! program or has ended, the table is in doubt, and all data calls ask the kernel.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

use rustix::io::Errno;

use super::settings::is_on;
use crate::hidden;
use crate::state::{TABLE, owns};
use crate::table::Way;

/// Number of children that have closed connections.
static CHILDREN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// True if the child that uses this thread's memory is counted.
    static COUNTED: AtomicBool = const { AtomicBool::new(false) };
}

/// Tells whether the kernel has to be asked. Costs one load.
#[inline]
pub(super) fn is_in_doubt() -> bool {
    CHILDREN.load(Relaxed) != 0
}

/// Prepares that the program closes or replaces a descriptor. Fails with `EBADF` for a hidden one.
pub(crate) fn closing(fd: RawFd) -> Result<(), Errno> {
    if is_on() && matches!(TABLE.way(fd), Way::Channel(_)) && !owns() {
        note_unseen_close();
    }
    hidden::closing(fd)
}

/// Records that this process, which is a child of vfork, has closed a connection.
pub(super) fn note_unseen_close() {
    if !COUNTED.with(|counted| counted.swap(true, SeqCst)) {
        CHILDREN.fetch_add(1, SeqCst);
    }
}

/// Records that this process becomes another program or ends. Returns true if it was in doubt; then
/// [`goes_on`] has to follow if it fails.
pub(crate) fn is_over() -> bool {
    let was = is_in_doubt() && !owns() && COUNTED.with(|counted| counted.swap(false, SeqCst));
    if was {
        CHILDREN.fetch_sub(1, SeqCst);
    }
    was
}

/// Records that a child has not become another program.
pub(crate) fn goes_on(was: bool) {
    if was {
        note_unseen_close();
    }
}
