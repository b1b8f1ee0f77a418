//! An emulated card behind QEMU's `-netdev stream`.
//!
//! The stream carries finished frames, each behind a 4-byte big-endian length.

use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use taut_api::fabric::{DropReason, ForeignFd};
use taut_virtq::header::NetHeader;

use super::frame::{Body, Failure, Frame, Put};
use crate::net::ethernet::MAX_TAGGED;
use crate::net::software_offload::NO_OFFLOADS;

/// Length in bytes of the length field before each frame.
const PREFIX: usize = 4;
/// Shortest Ethernet frame without its checksum.
///
/// Guests with rings may send shorter frames, and some emulated cards (vlance) drop them unless
/// they are padded.
const MIN_FRAME: usize = 60;
/// Size of the read buffer. The longest frame always fits.
const BUFFER: usize = 2 * (PREFIX + MAX_TAGGED);

/// Frames from the card.
#[derive(Debug)]
pub struct Tx {
    socket: Arc<ForeignFd>,
    buffer: Box<[u8]>,
    /// `start..end` are the bytes that were read and not yet taken.
    start: usize,
    end: usize,
}

impl Tx {
    /// Creates the reading end of a socket.
    pub fn new(socket: Arc<ForeignFd>) -> Self {
        Self { socket, buffer: vec![0; BUFFER].into(), start: 0, end: 0 }
    }

    /// The next whole frame: the same one until [`Self::taken`] is called. It has no offloads.
    pub fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        loop {
            if let Some(len) = self.announced()? {
                let frame = self.start + PREFIX..self.start + PREFIX + len;
                if frame.end <= self.end {
                    return Ok(Some((NO_OFFLOADS, &self.buffer[frame])));
                }
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Releases the current frame.
    pub fn taken(&mut self) {
        if let Ok(Some(len)) = self.announced() {
            self.start += PREFIX + len;
        }
    }

    /// Length of the next frame, if its length field has arrived.
    fn announced(&self) -> Result<Option<usize>, Failure> {
        let Some(prefix) = self.buffer[self.start..self.end].first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        match u32::from_be_bytes(*prefix) as usize {
            len @ 1..=MAX_TAGGED => Ok(Some(len)),
            len => Err(Failure::Gone(format!(
                "the stream announced a frame of {len} bytes; at most {MAX_TAGGED} are possible"
            ))),
        }
    }

    /// Reads more bytes into the buffer. Returns `false` if there is nothing to read.
    fn read(&mut self) -> Result<bool, Failure> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let space = &mut self.buffer[self.end..];
        match self.socket.receive_bytes(space) {
            Ok(0) => Err(Failure::Gone("the stream's other end closed it".to_owned())),
            Ok(got) => {
                self.end += got;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(Failure::Gone(format!("the stream failed: {error}"))),
        }
    }
}

/// Frames to the card. When the socket accepts only a part of a frame, the rest waits here.
#[derive(Debug)]
pub struct Rx {
    socket: Arc<ForeignFd>,
    buffer: Vec<u8>,
    sent: usize,
}

impl Rx {
    /// Creates the writing end of a socket.
    pub fn new(socket: Arc<ForeignFd>) -> Self {
        Self { socket, buffer: Vec::with_capacity(PREFIX + MAX_TAGGED), sent: 0 }
    }

    /// Sends a frame without offloads.
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
            // The buffer holds the frame; it is sent before any other when there is room.
            Put::NotNow(_) => Put::Done,
            other => other,
        }
    }

    /// Sends the rest of the last frame.
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
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    use super::*;

    #[test]
    fn short_frames_are_padded_with_zeros_to_the_ethernet_minimum() {
        let (here, card) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut rx = Rx::new(Arc::new(ForeignFd::own(here)));
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
