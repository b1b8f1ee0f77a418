//! Types for programs that wait by themselves, for several connections at once.

use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;

/// What a program waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// Bytes, or the end of the stream.
    pub readable: bool,
    /// Room for bytes.
    pub writable: bool,
}

impl Interest {
    /// Reading only.
    pub const READABLE: Self = Self { readable: true, writable: false };
    /// Writing only.
    pub const WRITABLE: Self = Self { readable: false, writable: true };
    /// Reading and writing.
    pub const BOTH: Self = Self { readable: true, writable: true };
}

/// What a call would do at once: succeed, or fail with another error than `WouldBlock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// A read would.
    pub readable: bool,
    /// A write would, and at least half of the ring is free.
    pub writable: bool,
}

impl Ready {
    /// Tells whether there is anything.
    pub fn any(self) -> bool {
        self.readable || self.writable
    }
}

/// A descriptor to wait for.
#[derive(Debug, Clone, Copy)]
pub struct Polled<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Events as for `poll`, such as `POLLIN`. With 0, the descriptor is left out of the wait.
    pub events: i16,
}

impl Polled<'_> {
    pub(crate) const NOTHING: i16 = 0;
    pub(crate) const IN: i16 = PollFlags::IN.bits().cast_signed();
    pub(crate) const RDHUP: i16 = PollFlags::RDHUP.bits().cast_signed();
}
