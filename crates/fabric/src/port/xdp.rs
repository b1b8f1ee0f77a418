//! An XDP socket: a network card of the host as a port, without offloads.
//!
//! Frames are in memory that kernel and process share. Each frame is copied once between it and
//! guests' memory, and the kernel is called once for a burst that is sent.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use taut_api::fabric::message::XdpSocket;
use taut_api::fabric::{DropReason, ForeignFd, PortId};
use taut_virtq::header::NetHeader;
use tracing::{info, warn};

use super::frame::{Body, Failure, Frame, Put};
use crate::net::software_offload::NO_OFFLOADS;
use crate::sys::xsk::{Chunks, Damaged, Receiver, Sender};

/// Time after which the kernel is called again for frames that it did not take.
const RETRY: Duration = Duration::from_micros(200);

impl From<Damaged> for Failure {
    fn from(damaged: Damaged) -> Self {
        Self::Gone(damaged.to_string())
    }
}

/// Maps rings and memory of a socket. Chunks that a predecessor has lost are counted in the log.
pub fn map(
    id: PortId,
    socket: &Arc<ForeignFd>,
    memory: &ForeignFd,
    setup: &XdpSocket,
) -> io::Result<(Rx, Tx)> {
    let chunks = Arc::new(Chunks::map(memory, setup.memory)?);
    let receiver = Receiver::map(&**socket, setup, Arc::clone(&chunks))?;
    let sender = Sender::map(&**socket, setup, chunks)?;
    let (port, received, sent) = (id.0, receiver.missing(), sender.missing());
    if received == 0 && sent == 0 {
        info!(port, free = sender.free(), "all chunks of the XDP socket are accounted for");
    } else {
        warn!(port, received, sent, "chunks of the XDP socket are missing");
    }
    let rx = Rx { socket: Arc::clone(socket), sender, state: Wire::Up, full: false };
    Ok((rx, Tx { socket: Arc::clone(socket), receiver }))
}

/// Frames from the card.
#[derive(Debug)]
pub struct Tx {
    socket: Arc<ForeignFd>,
    receiver: Receiver,
}

impl Tx {
    /// The next frame: the same one until [`Self::taken`] is called.
    pub fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        Ok(self.receiver.first()?.map(|frame| (NO_OFFLOADS, frame)))
    }

    /// Goes on to the next frame. The kernel gets the chunks back by [`Self::release`].
    pub fn taken(&mut self) {
        self.receiver.advance();
    }

    /// Gives the chunks of taken frames back to the kernel: receivers have the frames now. If this
    /// process ends before, the next one delivers them again.
    pub fn release(&mut self) {
        if self.receiver.release() {
            // A driver without copies has stopped for want of chunks.
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&*self.socket, PollFlags::IN)], Some(&now));
        }
    }
}

/// State of the card at the last call of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Up,
    /// The interface is set down. The kernel takes no frames.
    Down,
    /// The interface is gone, or the rings are damaged.
    Gone(&'static str),
}

/// Frames to the card.
#[derive(Debug)]
pub struct Rx {
    socket: Arc<ForeignFd>,
    sender: Sender,
    state: Wire,
    /// No chunk was free for a frame.
    full: bool,
}

impl Rx {
    /// Adds a frame. The kernel sees it after [`Self::publish`].
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        self.add(frame.len, |space| match frame.body {
            Body::Guest(guest) => guest.copy_to(space),
            Body::Host(bytes) => {
                space.copy_from_slice(bytes);
                bytes.len()
            }
        })
    }

    /// Adds a finished frame: one without offloads.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        self.add(bytes.len(), |space| {
            space.copy_from_slice(bytes);
            bytes.len()
        })
    }

    /// Adds a frame of `len` bytes, which `fill` writes.
    fn add(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> Put {
        if len > self.sender.longest() {
            return Put::Refused(DropReason::Oversize);
        }
        if self.state != Wire::Up || self.sender.free() == 0 {
            self.call();
        }
        match self.state {
            Wire::Gone(why) => return Put::Failed(Failure::Gone(why.to_owned())),
            Wire::Down => return Put::Refused(DropReason::PortDown),
            Wire::Up => {}
        }
        if self.sender.put(|chunk| fill(&mut chunk[..len])) {
            return Put::Done;
        }
        self.full = true;
        Put::NotNow(DropReason::RingFull)
    }

    /// Has the kernel send all frames. Returns the time at which to call this again if it did not
    /// take all, or if a sender waits for room.
    pub fn publish(&mut self, now: Instant) -> Option<Instant> {
        self.call();
        let waits = self.full || self.sender.waiting() > 0;
        (waits && self.state == Wire::Up).then(|| now + RETRY)
    }

    /// Tells once that there is room for many frames again after there was none.
    pub fn has_room_again(&mut self) -> bool {
        self.full && self.sender.free() >= self.sender.chunks() / 4 && std::mem::take(&mut self.full)
    }

    /// Has the kernel send what it will take, and takes chunks back.
    fn call(&mut self) {
        self.sender.publish();
        let mut waiting = self.sender.waiting();
        if waiting == 0 && self.state == Wire::Down {
            self.state = Wire::Up;
        }
        while waiting > 0 && self.sender.needs_wake_up() {
            // Fails with EAGAIN behind as many frames as one call sends, and if the card is busy.
            let sent = send(&*self.socket, &[], SendFlags::DONTWAIT);
            let left = self.sender.waiting();
            let has_sent = left < waiting;
            waiting = left;
            match sent {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::BUSY | Errno::NOBUFS) if has_sent => {
                    self.state = Wire::Up;
                }
                Err(Errno::NETDOWN) => {
                    self.state = Wire::Down;
                    break;
                }
                Err(Errno::NXIO | Errno::NODEV) => {
                    self.state = Wire::Gone("the network interface is gone");
                    break;
                }
                _ => break,
            }
        }
        if self.sender.collect().is_err() {
            self.state = Wire::Gone("the rings of the XDP socket are damaged");
        }
    }
}
