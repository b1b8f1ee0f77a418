//! Wake-ups between threads that wait for one handle by themselves, each for its direction.
//!
//! A signal is one byte on the control connection, and the first thread that takes it takes it from
//! the others. A thread that takes signals therefore wakes all other waits of the program by an
//! event descriptor of each. A wait polls that and the control connection through one descriptor of
//! epoll. Both are watched for edges, since other threads may leave signals unread. A handle that
//! only one thread uses needs none of these, so they are made when a second one comes.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, read, write};

use crate::waiting::Interest;

/// Number of different waits: for reading, for writing, and for both.
const WAITS: usize = 3;

/// A wait of the program's own, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnWait(usize);

impl From<Interest> for OwnWait {
    fn from(interest: Interest) -> Self {
        Self(match (interest.readable, interest.writable) {
            (true, false) => 0,
            (false, true) => 1,
            _ => 2,
        })
    }
}

/// The waits that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct OwnWaits {
    has_begun: [bool; WAITS],
    /// True once several threads were seen to wait for the handle.
    pub(crate) are_shared: bool,
}

impl OwnWaits {
    pub(crate) fn begin(&mut self, wait: OwnWait) {
        self.has_begun[wait.0] = true;
        self.are_shared |= self.others(Some(wait)).next().is_some();
    }

    pub(crate) fn end(&mut self, wait: OwnWait) {
        self.has_begun[wait.0] = false;
    }

    /// Waits that have begun, without `own`.
    pub(crate) fn others(&self, own: Option<OwnWait>) -> impl Iterator<Item = OwnWait> + use<> {
        let has_begun = self.has_begun;
        (0..WAITS).map(OwnWait).filter(move |wait| has_begun[wait.0] && Some(*wait) != own)
    }
}

/// Descriptors of the waits, as far as they were needed.
#[derive(Debug, Default)]
pub(crate) struct Wakers([OnceLock<Waker>; WAITS]);

#[derive(Debug)]
struct Waker {
    event: OwnedFd,
    /// Becomes readable with each arrival at `event` and at the control connection, until
    /// [`Wakers::clear`].
    either: OwnedFd,
}

impl Wakers {
    /// Makes the descriptors of a wait, unless they exist. Returns false if no descriptor was free.
    /// Then other threads leave the signals to this wait.
    pub(crate) fn make(&self, wait: OwnWait, control: BorrowedFd<'_>) -> bool {
        if self.0[wait.0].get().is_none()
            && let Ok(waker) = Waker::new(control)
        {
            let _ = self.0[wait.0].set(waker);
        }
        self.0[wait.0].get().is_some()
    }

    /// Descriptor that a wait polls instead of the control connection, if there is one.
    pub(crate) fn polled(&self, wait: OwnWait) -> Option<BorrowedFd<'_>> {
        self.0[wait.0].get().map(|waker| waker.either.as_fd())
    }

    /// Ends the poll of a wait.
    pub(crate) fn wake(&self, wait: OwnWait) {
        if let Some(waker) = self.0[wait.0].get() {
            // Fails only if the counter is full: it is readable then.
            let _ = write(&waker.event, &1u64.to_ne_bytes());
        }
    }

    /// Forgets earlier wake-ups and arrivals. The next wait ends only by a new one.
    pub(crate) fn clear(&self, wait: OwnWait) {
        if let Some(waker) = self.0[wait.0].get() {
            // Fails if nothing was left.
            let _ = read(&waker.event, &mut [0; 8]);
            let mut events = [MaybeUninit::uninit(); 2];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = epoll::wait(&waker.either, &mut events, Some(&now));
        }
    }
}

impl Waker {
    fn new(control: BorrowedFd<'_>) -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        for fd in [event.as_fd(), control] {
            epoll::add(&either, fd, epoll::EventData::new_u64(0), events)?;
        }
        Ok(Self { event, either })
    }
}
