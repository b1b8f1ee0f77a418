//! Event descriptors for both the poller and rust-vmm's vhost crate.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use vmm_sys_util::eventfd::EventFd;

/// A non-blocking eventfd.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Creates an event that is not raised.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Raises the event.
    pub fn raise(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Clears the event, if it is raised.
    pub fn clear(&self) {
        clear(self);
    }

    /// Clears the event and returns how often it was raised since the last time.
    pub fn take(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }

    /// Returns a second handle of the same event.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Returns a second handle as rust-vmm's type.
    pub fn for_vhost(&self) -> io::Result<EventFd> {
        let descriptor = self.0.try_clone()?.into_raw_fd();
        // SAFETY: the descriptor was just duplicated and released by its owner, so it is open and
        // nobody else closes it.
        Ok(unsafe { EventFd::from_raw_fd(descriptor) })
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Clears the event of a descriptor, if it is raised.
pub fn clear(event: impl AsFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}
