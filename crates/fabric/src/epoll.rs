//! Waiting for descriptors: an epoll set whose members leave it when they are dropped.

use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use rustix::event::epoll::EventFlags;
use rustix::event::epoll::{self, CreateFlags, Event, EventData};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// An epoll set, shared by its members.
#[derive(Debug, Clone)]
pub struct Epoll(Arc<OwnedFd>);

/// What happened: the token given to [`Epoll::watch`], and how.
pub type Ready = (u64, EventFlags);

/// Most events taken at once.
const BATCH: usize = 64;

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(epoll::create(CreateFlags::CLOEXEC)?)))
    }

    /// Adds a descriptor; it leaves the set when the returned value is dropped. This is not left to the kernel, which
    /// drops a member only when the last duplicate of its descriptor, wherever it is, has been closed.
    pub fn watch<F: AsFd>(&self, fd: F, token: u64, flags: EventFlags) -> io::Result<Watched<F>> {
        epoll::add(&self.0, &fd, EventData::new_u64(token), flags)?;
        Ok(Watched { epoll: self.clone(), fd })
    }

    /// Waits until something happens or `timeout` passes (`None`: for ever), and replaces the contents of `ready`.
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut events = [MaybeUninit::<Event>::uninit(); BATCH];
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok((happened, _)) => {
                ready.extend(happened.iter().map(|event| (event.data.u64(), event.flags)));
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A member of an [`Epoll`] set.
#[derive(Debug)]
pub struct Watched<F: AsFd> {
    epoll: Epoll,
    fd: F,
}

impl<F: AsFd> Deref for Watched<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fd
    }
}

impl<F: AsFd> DerefMut for Watched<F> {
    fn deref_mut(&mut self) -> &mut F {
        &mut self.fd
    }
}

impl<F: AsFd> Drop for Watched<F> {
    fn drop(&mut self) {
        // Cannot fail: the descriptor was added and is still open.
        let _ = epoll::delete(&self.epoll.0, &self.fd);
    }
}

/// An eventfd by which one thread wakes another.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that nobody has used yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes whoever waits.
    pub fn wake(&self) {
        signal(&self.0);
    }

    /// Forgets all wake-ups so far.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a descriptor one that never blocks. By `fcntl`: the sandbox has no `ioctl`.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

/// Adds one to an event descriptor. One that is full has been signalled already; one that is broken is its owner's.
pub fn signal(event: impl AsFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}
