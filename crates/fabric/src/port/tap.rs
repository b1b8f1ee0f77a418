//! A TAP device: the host's network stack as a port.
//!
//! A 12-byte virtio-net header precedes each frame.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use taut_api::fabric::{DropReason, ForeignFd};
use taut_virtq::header::{self, NetHeader};

use super::frame::{Body, Failure, Frame, Put};
use crate::net::ethernet::MAX_TAGGED;
use crate::net::software_offload::{NO_OFFLOADS, Offloads};

/// Frames from the host's stack.
#[derive(Debug)]
pub struct Tx {
    device: Arc<ForeignFd>,
    buffer: Box<[u8]>,
    /// Length of the frame in `buffer`, header included; 0 if there is none.
    held: usize,
}

impl Tx {
    /// Creates the reading end of a device.
    pub fn new(device: Arc<ForeignFd>) -> Self {
        Self { device, buffer: vec![0; header::LEN + MAX_TAGGED].into(), held: 0 }
    }

    /// The next frame: the same one until [`Self::taken`] is called.
    pub fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        while self.held == 0 {
            match rustix::io::read(&self.device, &mut *self.buffer) {
                // A TAP never sends less than a header; such a read is ignored.
                Ok(got) => self.held = if got < header::LEN { 0 } else { got },
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::Gone(format!("the TAP device failed: {error}"))),
            }
        }
        let (header, frame) = self.buffer[..self.held].split_at(header::LEN);
        let header = header.first_chunk().map_or(NO_OFFLOADS, NetHeader::from_bytes);
        Ok(Some((header, frame)))
    }

    /// Releases the current frame.
    pub fn taken(&mut self) {
        self.held = 0;
    }
}

/// Frames to the host's stack.
#[derive(Debug)]
pub struct Rx {
    device: Arc<ForeignFd>,
    /// The offloads that the device was configured to accept.
    pub offloads: Offloads,
}

impl Rx {
    /// Creates the writing end of a device.
    pub fn new(device: Arc<ForeignFd>, offloads: Offloads) -> Self {
        Self { device, offloads }
    }

    /// Writes a frame from the memory in which it lies.
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        match frame.body {
            Body::Guest(body) => outcome(body.write_to(self.device.as_fd(), &frame.header.to_bytes())),
            Body::Host(bytes) => self.write(&frame.header, bytes),
        }
    }

    /// Writes a finished frame: one without offloads.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        self.write(&NO_OFFLOADS, bytes)
    }

    fn write(&self, header: &NetHeader, bytes: &[u8]) -> Put {
        let header = header.to_bytes();
        let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
        outcome(rustix::io::writev(&self.device, &parts).map_err(io::Error::from))
    }
}

/// Translates the result of a write to the device.
fn outcome(written: io::Result<usize>) -> Put {
    match written {
        Ok(_) => Put::Done,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::AGAIN) => Put::NotNow(DropReason::RingFull),
            Some(Errno::BADFD) => Put::Failed(Failure::Gone(format!("the TAP device failed: {error}"))),
            // EIO: the interface is down. EINVAL: the kernel rejects the header.
            _ => Put::Refused(DropReason::DeviceRefused),
        },
    }
}
