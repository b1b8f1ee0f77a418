//! Descriptors that the process inherits from its caller.
#![allow(unsafe_code, reason = "only this file turns a number into a descriptor")]

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Takes ownership of an inherited descriptor and has it closed when the program starts. Call it
/// once for a number, before the process opens descriptors itself.
pub(crate) fn take(number: RawFd) -> io::Result<OwnedFd> {
    find(number)?;
    // SAFETY: the descriptor is open, as just checked. No other value owns it: it was inherited,
    // and `take` is called once per number.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&owned, FdFlags::CLOEXEC)?;
    Ok(owned)
}

/// Returns an inherited descriptor, or a standard stream, that nobody in this process owns. It
/// stays open until the program starts, and longer if it is not close-on-exec.
pub(crate) fn find(number: RawFd) -> io::Result<BorrowedFd<'static>> {
    // SAFETY: the borrowed number is used for one system call, which fails if it is closed.
    let probed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(probed.as_fd())?;
    // SAFETY: the descriptor is open, as just checked. It stays open: this process closes only
    // descriptors that a value owns, and callers take ownership of others than those that they
    // look for here.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}
