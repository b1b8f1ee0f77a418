//! One connection: what both ends say to each other, and the bytes in both directions.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::thread;

use crate::pattern::{PIECE, Pattern, SECRET, Secret};
use crate::rest::Rest;
use crate::ways::Way;

const MAGIC: [u8; 8] = *b"transfer";
/// Length of a request.
const LEN: usize = 8 + 3 * 8 + 1 + SECRET;

/// First message of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes from the client; those to the client are the pattern of the other direction.
    pub(crate) pattern: Pattern,
    /// Bytes in each direction.
    pub(crate) len: u64,
    /// What the server does with its socket.
    pub(crate) way: Way,
}

impl Request {
    pub(crate) fn write(self, mut to: impl Write) -> Result<()> {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(MAGIC);
        for number in [self.pattern.seed, self.len, self.way.number()] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.push(u8::from(self.pattern.secret.is_some()));
        bytes.extend(self.pattern.secret.unwrap_or_default());
        to.write_all(&bytes)
    }

    pub(crate) fn read(mut from: impl Read) -> Result<Self> {
        let mut bytes = [0; LEN];
        from.read_exact(&mut bytes)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 + 8 * at + byte]));
        let secret: Secret = std::array::from_fn(|byte| bytes[LEN - SECRET + byte]);
        let way = Way::of_number(number(2));
        let (Some(way), true) = (way, bytes[..8] == MAGIC) else {
            return Err(Error::other("the request has no meaning"));
        };
        let secret = (bytes[LEN - SECRET - 1] == 1).then_some(secret);
        Ok(Self { pattern: Pattern { seed: number(0), secret }, len: number(1), way })
    }
}

/// Sends `len` bytes of a pattern and receives as many of the other one, at once. At half of the
/// bytes to send, the sending thread does `way` with the socket. Returns the position of the first
/// wrong byte that was received, if there is one.
pub(crate) fn exchange(
    stream: &TcpStream,
    (sent, received): (Pattern, Pattern),
    len: u64,
    way: Way,
) -> Result<Option<u64>> {
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let half = len / 2;
            write(stream, sent, 0, half)?;
            way.send(stream.as_raw_fd(), Rest { pattern: sent, from: half, end: len })
        });
        let reader = scope.spawn(|| read(stream, received, len));
        let joined = |outcome: thread::Result<_>| outcome.map_err(|_| Error::other("a thread has panicked"));
        let read = joined(reader.join())?;
        sender.join().map_err(|_| Error::other("a thread has panicked"))??;
        read
    })
}

/// Writes the bytes of a pattern between two positions.
pub(crate) fn write(mut to: impl Write, pattern: Pattern, from: u64, end: u64) -> Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = from;
    while at < end {
        let len = (end - at).min(PIECE as u64) as usize;
        pattern.fill(at, &mut piece[..len]);
        to.write_all(&piece[..len])?;
        at += len as u64;
    }
    Ok(())
}

fn read(mut from: impl Read, pattern: Pattern, len: u64) -> Result<Option<u64>> {
    let mut piece = vec![0; PIECE];
    let (mut at, mut wrong) = (0, None);
    while at < len {
        let most = (len - at).min(PIECE as u64) as usize;
        let count = match from.read(&mut piece[..most]) {
            Ok(0) => return Err(Error::other(format!("the stream ends after {at} of {len} bytes"))),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        wrong = wrong.or_else(|| pattern.first_wrong(at, &piece[..count]));
        at += count as u64;
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        for (secret, way) in [(None, Way::Stay), (Some([5; SECRET]), Way::Splice)] {
            let request = Request { pattern: Pattern { seed: u64::MAX - 4, secret }, len: 1 << 40, way };
            let mut bytes = Vec::new();
            request.write(&mut bytes).unwrap();
            assert_eq!(bytes.len(), LEN);
            assert_eq!(Request::read(&bytes[..]).unwrap(), request);
            bytes[0] ^= 1;
            assert!(Request::read(&bytes[..]).is_err());
            assert!(Request::read(&bytes[..LEN - 1]).is_err());
        }
    }

    #[test]
    fn the_first_wrong_byte_is_found() {
        let pattern = Pattern { seed: 1, secret: None };
        let mut bytes = Vec::new();
        write(&mut bytes, pattern, 0, 200_000).unwrap();
        assert_eq!(read(&bytes[..], pattern, 200_000).unwrap(), None);
        bytes[150_001] ^= 8;
        assert_eq!(read(&bytes[..], pattern, 200_000).unwrap(), Some(150_001));
        assert!(read(&bytes[..], pattern, 200_001).is_err());
    }
}
