//! A log file of bounded size, which goes on when the disk is full.

mod storage;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

pub use storage::Storage;

/// Smallest limit of a log, in bytes.
pub const LEAST_LIMIT: u64 = 2 * CHUNK as u64;
/// Maximum number of bytes that are kept in memory while a log cannot be written.
pub const BACKLOG: usize = 256 << 10;
/// Maximum number of bytes that one call reads or writes.
const CHUNK: usize = 64 << 10;
/// Time after which writing is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// A log with at most `limit` bytes.
///
/// When more would not fit, half the limit is cut off at the front: the rest is copied to the front
/// of the same file, which is then truncated. A reader that knows the limit therefore finds its
/// place again ([`crate::follow`]). A process that is killed while it copies leaves a part of the
/// log twice.
#[derive(Debug)]
pub struct BoundedLog<S> {
    storage: S,
    limit: u64,
    /// Newest bytes that could not be written.
    backlog: VecDeque<u8>,
    /// Number of bytes that were lost before those of the backlog.
    lost: u64,
    /// Reason of the last failure.
    reason: String,
    retry_at: Instant,
}

/// Returns the number of bytes that are cut off when a log with this limit and length is full.
pub const fn cut(limit: u64, length: u64) -> u64 {
    let half = limit / 2;
    // A file that was longer than the limit before keeps its newest bytes.
    let beyond = length.saturating_sub(half);
    if length > limit { beyond } else { half }
}

impl<S: Storage> BoundedLog<S> {
    /// Continues the log in `storage`. A limit below [`LEAST_LIMIT`] counts as that.
    pub fn new(storage: S, limit: u64, now: Instant) -> Self {
        Self {
            storage,
            limit: limit.max(LEAST_LIMIT),
            backlog: VecDeque::new(),
            lost: 0,
            reason: String::new(),
            retry_at: now,
        }
    }

    /// Appends bytes. What cannot be written now is kept in memory, up to [`BACKLOG`].
    pub fn append(&mut self, bytes: &[u8], now: Instant) {
        if self.has_backlog() {
            self.keep(bytes);
            self.settle(now);
        } else if let Err((written, error)) = self.write(bytes) {
            self.failed(&error, now);
            self.keep(&bytes[written..]);
        }
    }

    /// Tries again to write what could not be written, unless it failed a moment ago.
    pub fn settle(&mut self, now: Instant) {
        if self.has_backlog() && now >= self.retry_at {
            self.finish(now);
        }
    }

    /// Tries to write what could not be written.
    pub fn finish(&mut self, now: Instant) {
        if self.has_backlog()
            && let Err(error) = self.write_backlog()
        {
            self.failed(&error, now);
        }
    }

    /// Returns the time at which writing is tried again.
    pub fn due(&self) -> Option<Instant> {
        self.has_backlog().then_some(self.retry_at)
    }

    fn has_backlog(&self) -> bool {
        self.lost > 0 || !self.backlog.is_empty()
    }

    fn keep(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(BACKLOG)..];
        let evicted = (self.backlog.len() + kept.len()).saturating_sub(BACKLOG);
        self.backlog.drain(..evicted);
        self.backlog.extend(kept);
        self.lost += (bytes.len() - kept.len() + evicted) as u64;
    }

    fn failed(&mut self, error: &io::Error, now: Instant) {
        self.reason = error.to_string();
        self.retry_at = now + RETRY;
    }

    /// Writes a line about lost bytes, and the backlog.
    fn write_backlog(&mut self) -> io::Result<()> {
        if self.lost > 0 {
            let (lost, why) = (self.lost, &self.reason);
            let notice =
                format!("\r\n[taut: {lost} bytes are missing: the log could not be written: {why}]\r\n");
            let length = self.storage.length()?;
            if let Err((written, error)) = self.write(notice.as_bytes()) {
                if written > 0 {
                    // The next attempt writes the whole line.
                    self.storage.truncate(length)?;
                }
                return Err(error);
            }
            self.lost = 0;
        }
        let mut backlog = std::mem::take(&mut self.backlog);
        let result = self.write(backlog.make_contiguous());
        if let Err((written, _)) = &result {
            backlog.drain(..*written);
            self.backlog = backlog;
        }
        result.map_err(|(_, error)| error)
    }

    /// Writes bytes. An error tells how many were written.
    fn write(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        while written < bytes.len() {
            let chunk = &bytes[written..bytes.len().min(written + CHUNK)];
            let n = self.write_chunk(chunk).map_err(|error| (written, error))?;
            written += n;
        }
        Ok(())
    }

    /// Writes the beginning of a chunk, and returns how much. The place is asked for each time: the
    /// file's owner may have truncated it.
    fn write_chunk(&self, chunk: &[u8]) -> io::Result<usize> {
        let mut length = self.storage.length()?;
        if length + chunk.len() as u64 > self.limit {
            length = self.cut_front(length)?;
        }
        match self.storage.write_at(chunk, length) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }

    /// Cuts the older half off and returns the new length.
    fn cut_front(&self, length: u64) -> io::Result<u64> {
        let cut = cut(self.limit, length);
        let mut buffer = vec![0; CHUNK];
        let mut to = 0;
        while cut + to < length {
            let n = self.storage.read_at(&mut buffer, cut + to)?;
            if n == 0 {
                // Somebody else has truncated the file.
                break;
            }
            let mut copied = 0;
            while copied < n {
                match self.storage.write_at(&buffer[copied..n], to)? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    n => (copied, to) = (copied + n, to + n as u64),
                }
            }
        }
        self.storage.truncate(to)?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests;
