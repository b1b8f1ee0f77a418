//! An epoll set whose members leave it when they are dropped, and eventfds.

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

/// An epoll set. Clones share it.
#[derive(Debug, Clone)]
pub struct Epoll(Arc<OwnedFd>);

/// An event: the token given to [`Epoll::watch`], and the flags.
pub type Ready = (u64, EventFlags);

/// Largest number of events read at once.
const BATCH: usize = 64;

impl Epoll {
    /// Creates an empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(epoll::create(CreateFlags::CLOEXEC)?)))
    }

    /// Adds a descriptor, which leaves the set when the returned value is dropped.
    ///
    /// The kernel alone would keep it until the last duplicate in any process has been closed.
    pub fn watch<F: AsFd>(&self, fd: F, token: u64, flags: EventFlags) -> io::Result<Watched<F>> {
        let mut watched = self.prepare(fd, token, flags);
        watched.arm()?;
        Ok(watched)
    }

    /// Prepares to watch a descriptor, which joins the set with [`Watched::arm`].
    pub fn prepare<F: AsFd>(&self, fd: F, token: u64, flags: EventFlags) -> Watched<F> {
        Watched { epoll: self.clone(), fd, token, flags, is_member: false }
    }

    /// Waits for events for at most `timeout` (`None`: without limit), and replaces `ready` by
    /// them.
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

/// A member of an [`Epoll`] set, or a descriptor that can become one.
#[derive(Debug)]
pub struct Watched<F: AsFd> {
    epoll: Epoll,
    fd: F,
    token: u64,
    flags: EventFlags,
    is_member: bool,
}

impl<F: AsFd> Watched<F> {
    /// Adds the descriptor to its set, unless it is a member already. A condition that holds at
    /// that moment is reported, even if edge-triggered.
    pub fn arm(&mut self) -> io::Result<()> {
        if !self.is_member {
            epoll::add(&self.epoll.0, &self.fd, EventData::new_u64(self.token), self.flags)?;
            self.is_member = true;
        }
        Ok(())
    }

    /// Removes the descriptor from its set until it is added again.
    pub fn disarm(&mut self) {
        if std::mem::take(&mut self.is_member) {
            // No error is possible: the descriptor was added and is still open.
            let _ = epoll::delete(&self.epoll.0, &self.fd);
        }
    }

    /// Moves the member to another set.
    ///
    /// A condition that holds at that moment is reported in the new set, even if edge-triggered.
    /// During the move, an event may be reported in both sets.
    ///
    /// # Errors
    /// The kernel refuses the new watch; the member stays in its set.
    pub fn move_to(&mut self, epoll: &Epoll) -> io::Result<()> {
        if !Arc::ptr_eq(&self.epoll.0, &epoll.0) {
            if self.is_member {
                epoll::add(&epoll.0, &self.fd, EventData::new_u64(self.token), self.flags)?;
                let _ = epoll::delete(&self.epoll.0, &self.fd);
            }
            self.epoll = epoll.clone();
        }
        Ok(())
    }
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
        self.disarm();
    }
}

/// An eventfd by which one thread wakes another.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a waker.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the waker readable, which wakes a thread that watches it.
    pub fn wake(&self) {
        // A full one is readable already. No other process has a duplicate, so it never blocks.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the waker unreadable.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a descriptor non-blocking. This uses `fcntl`, because the sandbox forbids `ioctl`.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_that_was_reported_in_the_old_set_is_reported_again_in_the_new_one() {
        let (old, new) = (Epoll::new().unwrap(), Epoll::new().unwrap());
        let event = Waker::new().unwrap();
        let flags = EventFlags::IN | EventFlags::ET;
        let mut watched = old.watch(event.clone(), 7, flags).unwrap();
        let mut ready = Vec::new();
        event.wake();
        old.wait(&mut ready, None).unwrap();
        assert_eq!(ready, [(7, EventFlags::IN)]);
        watched.move_to(&new).unwrap();
        new.wait(&mut ready, None).unwrap();
        assert_eq!(ready, [(7, EventFlags::IN)]);
        event.wake();
        new.wait(&mut ready, None).unwrap();
        assert_eq!(ready.len(), 1);
        old.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
        drop(watched);
        event.wake();
        new.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn a_descriptor_is_reported_only_while_it_is_armed() {
        let (first, second) = (Epoll::new().unwrap(), Epoll::new().unwrap());
        let event = Waker::new().unwrap();
        let mut watched = first.prepare(event.clone(), 7, EventFlags::IN | EventFlags::ET);
        event.wake();
        let ready = |epoll: &Epoll| {
            let mut ready = Vec::new();
            epoll.wait(&mut ready, Some(Duration::ZERO)).unwrap();
            ready.len()
        };
        assert_eq!(ready(&first), 0);
        watched.arm().unwrap();
        watched.arm().unwrap();
        assert_eq!(ready(&first), 1, "what holds already is reported");
        watched.disarm();
        event.wake();
        assert_eq!(ready(&first), 0);
        watched.move_to(&second).unwrap();
        watched.arm().unwrap();
        assert_eq!((ready(&first), ready(&second)), (0, 1));
    }

    #[test]
    fn a_timeout_is_not_rounded_up_to_a_millisecond() {
        let empty = Epoll::new().unwrap();
        let shortest = || {
            let begun = std::time::Instant::now();
            empty.wait(&mut Vec::new(), Some(Duration::from_micros(100))).unwrap();
            begun.elapsed()
        };
        // On a busy machine, at least one of many waits ends in time.
        assert!((0..1000).any(|_| shortest() < Duration::from_millis(1)));
    }
}
