//! An emulated card behind QEMU's `-netdev stream`: finished frames on a Unix stream, each behind a 4-byte big-endian
//! length.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use taut_api::fabric::DropReason;
use taut_virtq::header::NetHeader;

use super::frame::{Body, Failure, Frame, Put};
use crate::net::ethernet::MAX_TAGGED;
use crate::net::software_offload::PLAIN;

/// Bytes of the length before each frame.
const PREFIX: usize = 4;
/// Shortest frame on an Ethernet, its checksum aside. Guests on rings may send less, and some emulated cards (vlance)
/// throw away what no wire could have carried.
const MIN_FRAME: usize = 60;
/// Read at once; a frame of the greatest length always fits.
const BUFFER: usize = 2 * (PREFIX + MAX_TAGGED);

/// Frames from the card.
#[derive(Debug)]
pub struct Tx {
    socket: Arc<OwnedFd>,
    buffer: Box<[u8]>,
    /// The bytes read and not yet taken are `start..end`.
    start: usize,
    end: usize,
}

impl Tx {
    /// Reads from this socket.
    pub fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket, buffer: vec![0; BUFFER].into(), start: 0, end: 0 }
    }

    /// The next whole frame; the same one until [`Self::taken`]. Nothing is left to be done to it.
    pub fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        loop {
            if let Some(len) = self.announced()? {
                let frame = self.start + PREFIX..self.start + PREFIX + len;
                if frame.end <= self.end {
                    return Ok(Some((PLAIN, &self.buffer[frame])));
                }
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// The frame has been dealt with.
    pub fn taken(&mut self) {
        if let Ok(Some(len)) = self.announced() {
            self.start += PREFIX + len;
        }
    }

    fn announced(&self) -> Result<Option<usize>, Failure> {
        let Some(prefix) = self.buffer[self.start..self.end].first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        match u32::from_be_bytes(*prefix) as usize {
            len @ 1..=MAX_TAGGED => Ok(Some(len)),
            len => Err(Failure::Gone(format!("the stream announced a frame of {len} bytes"))),
        }
    }

    /// Reads more behind what is there; `false` when there is nothing.
    fn read(&mut self) -> Result<bool, Failure> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let space = &mut self.buffer[self.end..];
        match recv(&self.socket, space, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(Failure::Gone("the stream's other end closed it".to_owned())),
            Ok((_, got)) => {
                self.end += got;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(Failure::Gone(format!("the stream failed: {error}"))),
        }
    }
}

/// Frames to the card. At most one is on its way: when the socket takes a part of it, the rest waits here.
#[derive(Debug)]
pub struct Rx {
    socket: Arc<OwnedFd>,
    buffer: Vec<u8>,
    sent: usize,
}

impl Rx {
    /// Writes to this socket.
    pub fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket, buffer: Vec::with_capacity(PREFIX + MAX_TAGGED), sent: 0 }
    }

    /// Sends a frame that needs nothing done to it.
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        self.send(frame.len, |space| match frame.body {
            Body::Guest(body) => _ = body.copy_to(space),
            Body::Host(bytes) => space.copy_from_slice(bytes),
        })
    }

    /// Sends a finished frame.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        self.send(bytes.len(), |space| space.copy_from_slice(bytes))
    }

    fn send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Put {
        if len > MAX_TAGGED {
            return Put::Refused(DropReason::Oversize);
        }
        match self.flush() {
            Put::Done => {}
            other => return other,
        }
        self.sent = 0;
        self.buffer.clear();
        let padded = len.max(MIN_FRAME);
        self.buffer.extend((padded as u32).to_be_bytes());
        self.buffer.resize(PREFIX + padded, 0);
        fill(&mut self.buffer[PREFIX..PREFIX + len]);
        match self.flush() {
            // Ours now: it leaves when there is room, before any other.
            Put::NotNow(_) => Put::Done,
            other => other,
        }
    }

    /// Sends what is left of the last frame.
    pub fn flush(&mut self) -> Put {
        while self.sent < self.buffer.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.buffer[self.sent..], flags) {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Put::NotNow(DropReason::RingFull),
                Err(error) => return Put::Failed(Failure::Gone(format!("the stream failed: {error}"))),
            }
        }
        Put::Done
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn frames_too_short_for_a_wire_are_padded_with_zeros() {
        let (here, card) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut rx = Rx::new(Arc::new(here));
        for len in [42, 60, 61] {
            assert!(matches!(rx.put_bytes(&vec![7; len]), Put::Done));
            let mut got = [0xff; 128];
            let (_, count) = recv(&card, &mut got, RecvFlags::empty()).unwrap();
            let (prefix, frame) = got[..count].split_at(PREFIX);
            assert_eq!(prefix, u32::try_from(len.max(60)).unwrap().to_be_bytes());
            assert!(frame[..len].iter().all(|&byte| byte == 7) && frame[len..].iter().all(|&byte| byte == 0));
            assert_eq!(frame.len(), len.max(60));
        }
    }
}
