//! Descriptors that the process was started with ([`taut_api::fabric::fd`]).
#![allow(unsafe_code, reason = "a number becomes a descriptor here and nowhere else")]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use taut_api::fabric::fd;

/// Why the process cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("descriptor {number} ({what}) is missing\nhint: taut-fabric is started by tautd, not by hand")]
pub struct Missing {
    number: RawFd,
    what: &'static str,
    #[source]
    source: io::Error,
}

/// The listening control socket and the counters file.
#[derive(Debug)]
pub struct Inherited {
    /// `tautd` connects here.
    pub control: OwnedFd,
    /// The counters file.
    pub counters: OwnedFd,
}

impl Inherited {
    /// Takes the descriptors over. Call it once, first in `main`.
    pub fn take() -> Result<Self, Missing> {
        Ok(Self {
            control: take(fd::CONTROL, "control socket")?,
            counters: take(fd::COUNTERS, "counters file")?,
        })
    }
}

fn take(number: RawFd, what: &'static str) -> Result<OwnedFd, Missing> {
    // SAFETY: used for one system call, which fails on a closed descriptor.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(borrowed).map_err(|error| Missing { number, what, source: error.into() })?;
    // SAFETY: open, as just seen, and nothing else in this process knows the number: it was inherited, and `take` is
    // called once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
