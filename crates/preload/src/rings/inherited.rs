//! Connections that a forked child has from its parent.
//!
//! Many children close descriptors by system calls of their own, and open other files at the same
//! numbers. The library does not notice, and the bytes for such a file would go to the connection
//! that the parent still has. The first call on each connection after a fork therefore asks the
//! kernel what file the number is. The library does not detect a close after that call. If the
//! kernel refuses to answer, as a filter of system calls may have it do, the connection keeps its
//! channel.

use std::os::fd::RawFd;

use super::leave::forget;
use super::record::Pair;
use crate::state::{TABLE, owns, recognise_child};

/// Prepares the use of a number. Forgets its channel if the number was a connection of the parent
/// and is another file by now. Asks the kernel once after a fork, and costs two loads otherwise.
#[inline]
pub(super) fn check(fd: RawFd) {
    recognise_child();
    if TABLE.is_inherited(fd) {
        ask(fd);
    }
}

#[cold]
fn ask(fd: RawFd) {
    if Pair::known(fd).is_some() && Pair::of(fd).is_none() {
        forget(fd);
    }
    // A child of vfork has descriptors of its own, and what it finds is not true of its parent.
    if owns() {
        TABLE.set_inherited(fd, false);
    }
}
