//! The buffers of this process. A connection uses the one at its number modulo [`COUNT`], while it
//! has bytes there. If another connection's bytes are there and cannot be sent, its writes are not
//! gathered.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown, sockopt};
use rustix::thread::nanosleep;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::buffer::Buffer;
use super::lock::{Lock, Taken};
use crate::hidden::unhide;
use crate::state::owns;
use crate::sys::at;

/// Number of buffers. Together they have at most 4 MiB.
const COUNT: usize = 256;
const BITS: usize = u64::BITS as usize;

static BUFFERS: [Lock<Buffer>; COUNT] = [const { Lock::new(Buffer::new()) }; COUNT];

/// A bit for each buffer that may have bytes.
static FILLED: [AtomicU64; COUNT / BITS] = [const { AtomicU64::new(0) }; COUNT / BITS];

/// A buffer that this thread uses.
pub(super) struct Used {
    buffer: Taken<'static, Buffer>,
    place: usize,
}

/// The current time in nanoseconds of the monotonic clock.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Sleeps. A signal may end that early.
pub(super) fn sleep(time: Duration) {
    let (tv_sec, tv_nsec) = (time.as_secs().cast_signed(), i64::from(time.subsec_nanos()));
    let _ = nanosleep(&Timespec { tv_sec, tv_nsec });
}

fn place_of(fd: RawFd) -> usize {
    fd.cast_unsigned() as usize % COUNT
}

fn bit(place: usize) -> Option<(&'static AtomicU64, u64)> {
    Some((FILLED.get(place / BITS)?, 1 << (place % BITS)))
}

/// Tells whether any buffer may have bytes.
pub(super) fn has_bytes() -> bool {
    FILLED.iter().any(|word| word.load(Relaxed) != 0)
}

/// Tells whether the buffer of a number may have bytes.
pub(super) fn may_have(fd: RawFd) -> bool {
    bit(place_of(fd)).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// The places of the buffers that may have bytes.
pub(super) fn filled() -> impl Iterator<Item = usize> {
    FILLED.iter().enumerate().flat_map(|(index, word)| {
        let mut bits = word.load(SeqCst);
        std::iter::from_fn(move || {
            let place = bits.trailing_zeros() as usize;
            bits &= bits.checked_sub(1)?;
            Some(index * BITS + place)
        })
    })
}

/// The buffer of a number.
pub(super) fn of(fd: RawFd) -> Option<Used> {
    at_place(place_of(fd))
}

/// The buffer at a place.
pub(super) fn at_place(place: usize) -> Option<Used> {
    Some(Used { buffer: BUFFERS.get(place)?.take(), place })
}

/// Waits until no thread uses a buffer as before. Called when the program gets its first handler.
pub(super) fn pass_all() {
    for lock in &BUFFERS {
        drop(lock.take());
    }
}

/// Empties all buffers in a forked child: their bytes are the parent's.
pub(super) fn forget_all() {
    for lock in &BUFFERS {
        lock.open(|buffer| {
            if buffer.closed {
                unhide(buffer.fd);
            }
            buffer.begin(-1, 0);
        });
    }
    for word in &FILLED {
        word.store(0, Relaxed);
    }
}

impl std::ops::Deref for Used {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.buffer
    }
}

impl std::ops::DerefMut for Used {
    fn deref_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}

impl Used {
    /// Sends the bytes now, as far as the kernel takes them. The program learns of an error by its
    /// next write.
    pub(super) fn flush_behind(&mut self, now: &dyn Fn() -> u64) {
        if !owns() {
            // A child of vfork sends what its parent has for a connection that it has, too, so that
            // its own bytes come later. All others are left to the parent.
            if !self.is_here() {
                return;
            }
        } else if !self.is_there() {
            // The program has closed it without the library noticing.
            self.begin(-1, 0);
        }
        let fd = self.fd;
        self.buffer.flush_behind(now, &mut |bytes| give(fd, bytes));
        self.settle();
    }

    /// Tells whether the descriptor still is the connection.
    fn is_there(&self) -> bool {
        at(self.fd).and_then(sockopt::socket_cookie) == Ok(self.cookie)
    }

    /// Tells whether bytes wait for a peer for which the program may wait.
    pub(super) fn is_stuck(&self) -> bool {
        !self.is_empty() && !self.closed && !self.given_up && self.is_here()
    }

    /// Tells whether this process may send the bytes. A child of vfork has the buffers of its
    /// parent, but descriptors of its own.
    pub(super) fn is_here(&self) -> bool {
        owns() || !self.closed && self.is_there()
    }

    /// Does what comes after the last byte. Called after each change.
    pub(super) fn settle(&mut self) {
        let Some((word, bit)) = bit(self.place) else { return };
        if !self.is_empty() {
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, SeqCst);
            }
            return;
        }
        if word.load(Relaxed) & bit != 0 {
            word.fetch_and(!bit, SeqCst);
        }
        let shuts = std::mem::take(&mut self.shuts);
        if (std::mem::take(&mut self.lost) || shuts)
            && self.is_there()
            && let Ok(socket) = at(self.fd)
        {
            let _ = shutdown(socket, Shutdown::Write);
        }
        if std::mem::take(&mut self.closed) {
            unhide(self.fd);
            self.begin(-1, 0);
        }
    }
}

/// Sends bytes without waiting. In a child of vfork each error only means that the bytes go on
/// waiting: whether they are lost is for the parent to find out.
pub(super) fn give(fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    let result = at(fd).and_then(|socket| send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL));
    result.map_err(|error| if owns() { error } else { Errno::AGAIN })
}
