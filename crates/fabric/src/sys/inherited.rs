//! Descriptors that the process inherits from `tautd` ([`taut_api::fabric::fd`]).
#![allow(unsafe_code, reason = "only this file turns a number into a descriptor")]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use taut_api::fabric::fd;

/// A descriptor is missing.
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
    /// The listening socket to which `tautd` connects.
    pub control: OwnedFd,
    /// The counters file.
    pub counters: OwnedFd,
}

impl Inherited {
    /// Takes ownership of the descriptors. Call it once, first in `main`.
    pub fn take() -> Result<Self, Missing> {
        Ok(Self {
            control: take(fd::CONTROL, "control socket")?,
            counters: take(fd::COUNTERS, "counters file")?,
        })
    }
}

fn take(number: RawFd, what: &'static str) -> Result<OwnedFd, Missing> {
    // SAFETY: the borrowed number is used for one system call, which fails if it is closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(borrowed).map_err(|error| Missing { number, what, source: error.into() })?;
    // SAFETY: the descriptor is open, as just checked. No other value owns it: it was inherited,
    // and `take` is called once per number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
