//! The kind of a descriptor that came in a message.
//!
//! `fstat` does not tell it: all anonymous files have one inode. `/proc/self/fd` does, and nobody
//! can imitate it: the name of anything that has a path begins with `/`.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags, open, readlinkat};

/// `/proc/self/fd`, opened before the sandbox closes the file system.
static FOLDER: OnceLock<OwnedFd> = OnceLock::new();

/// Opens what [`is_eventfd`] needs. Call it before the sandbox.
pub fn prepare() -> io::Result<()> {
    folder().map(drop)
}

fn folder() -> io::Result<&'static OwnedFd> {
    if let Some(folder) = FOLDER.get() {
        return Ok(folder);
    }
    let opened = open("/proc/self/fd", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(FOLDER.get_or_init(|| opened))
}

/// The number of the only descriptor below which this process reads links.
pub(super) fn folder_number() -> io::Result<RawFd> {
    Ok(folder()?.as_raw_fd())
}

/// Tells whether the descriptor is an eventfd.
pub fn is_eventfd(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let name = readlinkat(folder()?, fd.as_raw_fd().to_string(), Vec::new())?;
    Ok(name.as_bytes() == b"anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::event::{EventfdFlags, epoll, eventfd};

    use super::*;

    #[test]
    fn an_eventfd_is_told_from_everything_that_resembles_it() {
        let memory =
            rustix::fs::memfd_create("anon_inode:[eventfd]", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for other in [memory, pipe, epoll] {
            assert!(!is_eventfd(other.as_fd()).unwrap());
        }
        assert!(is_eventfd(eventfd(3, EventfdFlags::SEMAPHORE).unwrap().as_fd()).unwrap());
    }
}
