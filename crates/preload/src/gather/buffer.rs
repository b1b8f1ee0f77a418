//! The bytes of one connection that the program has written and the kernel does not have yet.
//!
//! Times are in nanoseconds of the monotonic clock.

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::sys::{Pieces, pages};

/// Most bytes that wait.
pub(super) const ROOM: usize = 16 * 1024;
/// Largest write that is gathered. With a larger one the copy costs more than the packet.
pub(super) const SMALL: usize = 1024;
/// Time that bytes wait for more, and time after which a connection without bytes is idle.
pub(super) const SHORT: u64 = 200_000;
/// Number of writes on an idle connection that go at once. A request in so many writes is as fast
/// as without gathering.
pub(super) const AT_ONCE: u32 = 4;
/// The time for a connection with `TCP_CORK` (`man 7 tcp`).
pub(super) const CORKED: u64 = 200_000_000;
/// First and longest pause between attempts to send to a peer that takes nothing.
const PAUSES: (u64, u64) = (1_000_000, 64_000_000);

/// A system call that sends bytes without waiting. Returns how many the kernel has taken.
pub(super) type Send<'a> = &'a mut dyn FnMut(&[u8]) -> Result<usize, Errno>;

/// What the library does with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The program's own call goes to the kernel, which has all earlier bytes.
    Kernel,
    /// All bytes of the write are taken.
    Taken,
    /// Only so many are taken, since neither the kernel nor the buffer has room.
    Full(usize),
    /// The write fails.
    Failed(Errno),
}

/// Rules for one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    /// The write may wait for others.
    pub(super) gathers: bool,
    /// It waits even on an idle connection (`TCP_CORK`, `MSG_MORE`).
    pub(super) holds: bool,
    /// Time that it may wait.
    pub(super) time: u64,
}

/// The bytes of one connection. A buffer without bytes may become that of another one.
pub(super) struct Buffer {
    /// Room for the bytes, allocated when it is first used. A single word, so that it is valid in a
    /// child that is forked while another thread changes it.
    memory: Option<&'static mut [u8; ROOM]>,
    /// First byte that the kernel does not have.
    start: usize,
    /// End of the bytes.
    end: usize,
    /// The descriptor.
    pub(super) fd: RawFd,
    /// The socket's cookie.
    pub(super) cookie: u64,
    /// Time at which the bytes are sent at the latest.
    pub(super) until: u64,
    /// True if the bytes wait for the end of `TCP_CORK`.
    pub(super) corked: bool,
    /// Time when the kernel got bytes, as far as the clock was read then.
    last: u64,
    /// Number of writes that went at once since the connection was idle, or the peer answered.
    alone: u32,
    /// Pause before the next attempt to send.
    pause: u64,
    /// Error of the next write.
    error: Option<Errno>,
    /// True if bytes are lost by an error, and the socket is to be shut down: nothing may follow.
    pub(super) lost: bool,
    /// True if the program has shut down its half, which happens after the bytes.
    pub(super) shuts: bool,
    /// True if the program has closed the connection, and the descriptor is a hidden one.
    pub(super) closed: bool,
    /// True if a fork, exec or dup has waited for the peer in vain.
    pub(super) given_up: bool,
}

impl Buffer {
    /// A buffer of no connection.
    pub(super) const fn new() -> Self {
        Self {
            memory: None,
            start: 0,
            end: 0,
            fd: -1,
            cookie: 0,
            until: 0,
            corked: false,
            last: 0,
            alone: 0,
            pause: PAUSES.0,
            error: None,
            lost: false,
            shuts: false,
            closed: false,
            given_up: false,
        }
    }

    /// Makes it the buffer of another connection. Its bytes are gone.
    pub(super) fn begin(&mut self, fd: RawFd, cookie: u64) {
        let memory = self.memory.take();
        *self = Self { memory, fd, cookie, ..Self::new() };
    }

    /// Tells whether the kernel has all bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Records that the peer has answered. The next writes are not delayed.
    pub(super) fn answered(&mut self) {
        self.alone = 0;
    }

    /// Tells whether a write has to wait for others. Reads the clock only if that depends on it:
    /// in some guests the clock costs more than a system call.
    fn has_company(&mut self, now: &dyn Fn() -> u64) -> bool {
        if !self.is_empty() {
            return true;
        }
        if self.alone < AT_ONCE {
            return false;
        }
        let now = now();
        let recent = now.saturating_sub(self.last) < SHORT;
        if !recent {
            (self.alone, self.last) = (0, now);
        }
        recent
    }

    /// Decides on a write of which `done` bytes are taken already.
    pub(super) fn write(
        &mut self,
        pieces: &Pieces<'_>,
        mut done: usize,
        rules: Rules,
        now: &dyn Fn() -> u64,
        send: Send<'_>,
    ) -> Step {
        if self.shuts {
            return Step::Failed(Errno::PIPE);
        }
        if let Some(error) = self.error {
            // Bytes are missing in the stream. As with TCP, the error is told once, and the
            // connection stays broken.
            self.error = Some(Errno::PIPE);
            return Step::Failed(error);
        }
        let may = rules.gathers && pieces.len() <= SMALL;
        // A write that was gathered in part stays so.
        let waits = (done > 0 || may && (rules.holds || self.has_company(now))) && self.has_memory();
        if !waits {
            return match self.flush(now, send) {
                Ok(true) => {
                    self.alone = self.alone.saturating_add(1);
                    Step::Kernel
                }
                Ok(false) => Step::Full(0),
                Err(error) => Step::Failed(error),
            };
        }
        while done < pieces.len() {
            if self.is_empty() {
                (self.start, self.end, self.until, self.corked) =
                    (0, 0, now() + rules.time, rules.time > SHORT);
            }
            let room = self.memory.as_mut().and_then(|memory| memory.get_mut(self.end..));
            let count = pieces.copy(done, room.unwrap_or_default());
            (self.end, done) = (self.end + count, done + count);
            if self.end < ROOM {
                break;
            }
            match self.flush(now, send) {
                Ok(true) => {}
                Ok(false) if done == pieces.len() => break,
                Ok(false) => return Step::Full(done),
                Err(error) => return Step::Failed(error),
            }
        }
        Step::Taken
    }

    fn has_memory(&mut self) -> bool {
        if self.memory.is_none() {
            self.memory = pages(ROOM).ok().and_then(|memory| memory.try_into().ok());
        }
        self.memory.is_some()
    }

    /// Sends the bytes. Returns false if the kernel does not take all of them now. If it fails, the
    /// bytes are gone.
    pub(super) fn flush(&mut self, now: &dyn Fn() -> u64, send: Send<'_>) -> Result<bool, Errno> {
        while self.start < self.end {
            let bytes = self.memory.as_ref().and_then(|memory| memory.get(self.start..self.end));
            match send(bytes.unwrap_or_default()) {
                Ok(count) => {
                    self.start += count.min(self.end - self.start);
                    (self.last, self.pause) = (now(), PAUSES.0);
                }
                Err(Errno::INTR) => {}
                // A lack of memory ends, too.
                Err(Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS) => {
                    self.until = now() + self.pause;
                    self.pause = (2 * self.pause).min(PAUSES.1);
                    self.corked = false;
                    if let Some(memory) = &mut self.memory {
                        memory.copy_within(self.start..self.end, 0);
                    }
                    (self.start, self.end) = (0, self.end - self.start);
                    return Ok(false);
                }
                Err(error) => {
                    self.start = self.end;
                    (self.error, self.lost) = (Some(Errno::PIPE), true);
                    return Err(error);
                }
            }
        }
        self.corked = false;
        Ok(true)
    }

    /// Sends the bytes while the program does something else, which learns of an error by its next
    /// write.
    pub(super) fn flush_behind(&mut self, now: &dyn Fn() -> u64, send: Send<'_>) {
        if let Err(error) = self.flush(now, send) {
            self.error = Some(error);
        }
    }
}
