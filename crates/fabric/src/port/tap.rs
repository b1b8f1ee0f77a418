//! A TAP device: a host's network stack as a port. Each frame begins with a 12-byte virtio-net header.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use taut_api::fabric::DropReason;
use taut_virtq::header::{self, NetHeader};

use super::frame::{Body, Failure, Frame, Put};
use crate::net::ethernet::MAX_TAGGED;
use crate::net::software_offload::{Offloads, PLAIN};

/// Frames from the host's stack.
#[derive(Debug)]
pub struct Tx {
    device: Arc<OwnedFd>,
    buffer: Box<[u8]>,
    /// Bytes of the frame that was read and not yet taken.
    held: usize,
}

impl Tx {
    /// Reads from this device.
    pub fn new(device: Arc<OwnedFd>) -> Self {
        Self { device, buffer: vec![0; header::LEN + MAX_TAGGED].into(), held: 0 }
    }

    /// The next frame; the same one until [`Self::taken`].
    pub fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        while self.held == 0 {
            match rustix::io::read(&self.device, &mut *self.buffer) {
                // Shorter than its header: nothing that a TAP sends.
                Ok(got) => self.held = if got < header::LEN { 0 } else { got },
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::Gone(format!("the TAP device failed: {error}"))),
            }
        }
        let (header, frame) = self.buffer[..self.held].split_at(header::LEN);
        let header = header.first_chunk().map_or(PLAIN, NetHeader::from_bytes);
        Ok(Some((header, frame)))
    }

    /// The frame has been dealt with.
    pub fn taken(&mut self) {
        self.held = 0;
    }
}

/// Frames to the host's stack.
#[derive(Debug)]
pub struct Rx {
    device: Arc<OwnedFd>,
    /// What the device was switched to take.
    pub offloads: Offloads,
}

impl Rx {
    /// Writes to this device.
    pub fn new(device: Arc<OwnedFd>, offloads: Offloads) -> Self {
        Self { device, offloads }
    }

    /// Writes a frame from where it is.
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        match frame.body {
            Body::Guest(body) => verdict(body.write_to(self.device.as_fd(), Some(&frame.header))),
            Body::Host(bytes) => self.write(&frame.header, bytes),
        }
    }

    /// Writes a finished frame.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        self.write(&PLAIN, bytes)
    }

    fn write(&self, header: &NetHeader, bytes: &[u8]) -> Put {
        let header = header.to_bytes();
        let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
        verdict(rustix::io::writev(&self.device, &parts).map_err(io::Error::from))
    }
}

fn verdict(written: io::Result<usize>) -> Put {
    match written {
        Ok(_) => Put::Done,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::AGAIN) => Put::NotNow(DropReason::RingFull),
            Some(Errno::BADFD) => Put::Failed(Failure::Gone(format!("the TAP device failed: {error}"))),
            // EIO: the interface is down. EINVAL: the kernel does not like the header.
            _ => Put::Refused(DropReason::DeviceRefused),
        },
    }
}
