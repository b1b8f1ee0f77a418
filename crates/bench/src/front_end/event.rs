//! Event descriptors that both the poller and rust-vmm's vhost crate can use.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use vmm_sys_util::eventfd::EventFd;

/// An eventfd, not blocking.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// An event that was not raised.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Raises the event. A counter that is full has been raised often enough.
    pub fn raise(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes the event back, if it was raised.
    pub fn clear(&self) {
        clear(self);
    }

    /// Takes the event back and tells how often it was raised since the last time.
    pub fn take(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }

    /// The same event for another user.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// The same event as rust-vmm's type.
    pub fn for_vhost(&self) -> io::Result<EventFd> {
        let descriptor = self.0.try_clone()?.into_raw_fd();
        // SAFETY: the descriptor was just duplicated and given up by its owner, so it is open and has no other.
        Ok(unsafe { EventFd::from_raw_fd(descriptor) })
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes the event of a descriptor back, if it was raised.
pub fn clear(event: impl AsFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}
