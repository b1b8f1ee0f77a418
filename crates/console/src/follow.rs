//! Follows a log that grows and is cut at its front.

use std::io;

use crate::log::{Storage, cut};

/// Number of bytes in front of the place that identify it.
const MARK: usize = 256;
/// Fewest bytes that identify a place.
const LEAST_MARK: u64 = 16;
/// Maximum number of bytes read at once.
const CHUNK: usize = 64 << 10;

/// The place of a reader in a [`crate::log::BoundedLog`].
///
/// A log that was cut has lost exactly half its limit at the front, so the place moves by as much.
/// The bytes in front of it show whether it has. A place that comes to be at the front has none, so
/// its reader is told that bytes may be missing. A reader that has read nothing is told of nothing.
#[derive(Debug)]
pub struct Follower {
    limit: u64,
    place: u64,
    /// The newest bytes in front of the place.
    mark: Vec<u8>,
}

/// Bytes that were appended to a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// True if bytes in front of them were cut off before they could be read, or may have been.
    pub missed: bool,
}

impl Follower {
    /// Begins at the front of a log with this limit.
    pub const fn new(limit: u64) -> Self {
        Self { limit, place: 0, mark: Vec::new() }
    }

    /// Reads what was appended since the last call.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn read(&mut self, log: &impl Storage) -> io::Result<News> {
        let mut news = News::default();
        if !self.fits(log, self.place)? {
            let moved = self.place.checked_sub(cut(self.limit, self.limit));
            match moved {
                Some(place) if place >= LEAST_MARK && self.fits(log, place)? => self.place = place,
                _ => (self.place, news.missed) = (0, true),
            }
        }
        let mut buffer = vec![0; CHUNK];
        // Not more than the log can have, however fast it grows.
        while (news.bytes.len() as u64) < self.limit {
            let n = log.read_at(&mut buffer, self.place)?;
            if n == 0 {
                break;
            }
            news.bytes.extend_from_slice(&buffer[..n]);
            self.place += n as u64;
        }
        self.mark.extend_from_slice(&news.bytes[news.bytes.len().saturating_sub(MARK)..]);
        self.mark.drain(..self.mark.len().saturating_sub(MARK));
        Ok(news)
    }

    /// Returns whether the bytes in front of `place` are those that were read last.
    fn fits(&self, log: &impl Storage, place: u64) -> io::Result<bool> {
        let known = self.mark.len().min(usize::try_from(place).unwrap_or(usize::MAX));
        let mark = &self.mark[self.mark.len() - known..];
        let mut found = vec![0; known];
        let mut read = 0;
        while read < known {
            let n = log.read_at(&mut found[read..], place - (known - read) as u64)?;
            if n == 0 {
                return Ok(false);
            }
            read += n;
        }
        Ok(found == mark)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Instant;

    use super::*;
    use crate::log::{BoundedLog, LEAST_LIMIT};

    fn log() -> (BoundedLog<File>, File, Follower) {
        let file = tempfile::tempfile().unwrap();
        let log = BoundedLog::new(file.try_clone().unwrap(), LEAST_LIMIT, Instant::now());
        (log, file, Follower::new(LEAST_LIMIT))
    }

    #[test]
    fn nothing_is_lost_or_read_twice_when_the_log_is_cut() {
        let (mut log, file, mut follower) = log();
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for number in 0..40_000 {
            let line = format!("line {number}\n");
            log.append(line.as_bytes(), Instant::now());
            written.extend_from_slice(line.as_bytes());
            if number % 700 == 0 {
                let news = follower.read(&file).unwrap();
                assert!(!news.missed);
                read.extend(news.bytes);
            }
        }
        assert!(written.len() as u64 > 2 * LEAST_LIMIT);
        read.extend(follower.read(&file).unwrap().bytes);
        assert!(read == written);
        assert_eq!(follower.read(&file).unwrap(), News::default());
    }

    #[test]
    fn a_reader_that_is_too_slow_is_told() {
        let (mut log, file, mut follower) = log();
        log.append(b"first\n", Instant::now());
        assert_eq!(follower.read(&file).unwrap().bytes, b"first\n");
        for _ in 0..5 {
            log.append(&vec![b'x'; 40_000], Instant::now());
        }
        let news = follower.read(&file).unwrap();
        assert!(news.missed && news.bytes.iter().all(|byte| *byte == b'x'));
        file.truncate(0).unwrap();
        log.append(b"again\n", Instant::now());
        assert_eq!(follower.read(&file).unwrap(), News { bytes: b"again\n".to_vec(), missed: true });
    }
    #[test]
    fn a_reader_whose_place_comes_to_the_front_is_told() {
        let (mut log, file, mut follower) = log();
        let half = |byte| vec![byte; LEAST_LIMIT as usize / 2];
        log.append(&half(b'a'), Instant::now());
        assert_eq!(follower.read(&file).unwrap(), News { bytes: half(b'a'), missed: false });
        for byte in b'b'..=b'e' {
            log.append(&half(byte), Instant::now());
        }
        log.append(b"the end\n", Instant::now());
        let news = follower.read(&file).unwrap();
        assert!(news.missed && news.bytes.ends_with(b"the end\n"));
    }
}
