//! An epoll set whose members leave it when they are dropped.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::Timespec;
pub(crate) use rustix::event::epoll::EventFlags;
use rustix::event::epoll::{self, CreateFlags, Event, EventData};
use rustix::io::Errno;

/// Maximum number of events of one call. The kernel puts members whose events were reported behind
/// the others, so that all have their turn.
const BATCH: usize = 8;

/// An epoll set. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Epoll(Arc<OwnedFd>);

/// A descriptor in an epoll set.
#[derive(Debug)]
pub(crate) struct Watched {
    epoll: Epoll,
    fd: OwnedFd,
    token: u64,
    flags: EventFlags,
}

impl Epoll {
    /// Creates an empty set.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(epoll::create(CreateFlags::CLOEXEC)?)))
    }

    /// Adds a descriptor, whose events have this token.
    pub(crate) fn watch(&self, fd: OwnedFd, token: u64, flags: EventFlags) -> io::Result<Watched> {
        epoll::add(&self.0, &fd, EventData::new_u64(token), flags)?;
        Ok(Watched { epoll: self.clone(), fd, token, flags })
    }

    /// Waits for events for at most `timeout` (`None`: without limit). Returns them with their
    /// tokens.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<(u64, EventFlags)>> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut events = [MaybeUninit::<Event>::uninit(); BATCH];
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok((ready, _)) => Ok(ready.iter().map(|event| (event.data.u64(), event.flags)).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Watched {
    /// Waits for these events from now on. Errors and hang-ups are reported in any case.
    pub(crate) fn want(&mut self, flags: EventFlags) {
        // An error is possible only for a descriptor that is not in the set.
        if self.flags != flags
            && epoll::modify(&self.epoll.0, &self.fd, EventData::new_u64(self.token), flags).is_ok()
        {
            self.flags = flags;
        }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The kernel alone would keep the member until the last duplicate in any process has been
        // closed. No error is possible: the descriptor was added and is still open.
        let _ = epoll::delete(&self.epoll.0, &self.fd);
    }
}
