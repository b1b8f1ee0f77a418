//! XDP sockets: a network card of the host as a port, without offloads.
//!
//! Each queue of the card has a socket. Frames are in memory that kernel and process share. Each
//! frame is copied once between it and guests' memory. Frames are sent by the first queue, and the
//! kernel is called once for a burst.

mod wire;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use taut_api::fabric::message::XdpSocket;
use taut_api::fabric::{DropReason, ForeignFd, PortId};
use taut_virtq::header::NetHeader;
use tracing::{info, warn};

use super::frame::{Body, Failure, Frame, Put};
use crate::net::software_offload::NO_OFFLOADS;
use crate::sys::xsk::{Chunks, Damaged, Receiver, Sender};
use wire::{State, Wire};

impl From<Damaged> for Failure {
    fn from(damaged: Damaged) -> Self {
        Self::Gone(damaged.to_string())
    }
}

/// The socket of a queue of the card, with the memory of its frames.
#[derive(Debug)]
pub struct Queue {
    /// The socket.
    pub socket: Arc<ForeignFd>,
    /// The memory.
    pub memory: Arc<ForeignFd>,
}

/// Maps rings and memories of the sockets of a card. Chunks that a predecessor has lost are counted
/// in the log.
///
/// # Errors
/// There is no socket, or rings or memory are impossible.
pub fn map(id: PortId, queues: &[Queue], setup: &XdpSocket) -> io::Result<(Rx, Tx)> {
    let (first, others) = queues.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let source = |queue: &Queue, chunks| -> io::Result<Source> {
        let receiver = Receiver::map(&*queue.socket, setup, chunks)?;
        Ok(Source { socket: Arc::clone(&queue.socket), receiver })
    };
    let chunks = Arc::new(Chunks::map(&*first.memory, setup.memory)?);
    let mut sources = vec![source(first, Arc::clone(&chunks))?];
    let sender = Sender::map(&*first.socket, setup, chunks)?;
    for other in others {
        let chunks = Chunks::map(&*other.memory, setup.memory.receiving_only())?;
        sources.push(source(other, Arc::new(chunks))?);
    }
    let received: u32 = sources.iter().map(|source| source.receiver.missing()).sum();
    let (port, queues, sent) = (id.0, sources.len(), sender.missing());
    if sent == 0 && (received == 0 || setup.zero_copy) {
        // A driver without copies keeps chunks for the next frames.
        let (free, of_driver) = (sender.free(), received);
        info!(port, queues, free, of_driver, "all chunks of the XDP socket are accounted for");
    } else {
        warn!(port, queues, received, sent, "chunks of the XDP socket are missing");
    }
    let socket = Arc::clone(&first.socket);
    let rx = Rx { port: id, socket, sender, wire: Wire::default(), full: false };
    Ok((rx, Tx { sources, current: 0 }))
}

/// Frames of one queue of the card.
#[derive(Debug)]
struct Source {
    socket: Arc<ForeignFd>,
    receiver: Receiver,
}

/// Frames from the card. Its queues take turns by bursts; frames of one flow are in one queue.
#[derive(Debug)]
pub struct Tx {
    sources: Vec<Source>,
    /// Place of the queue that is read.
    current: usize,
}

impl Tx {
    /// The next frame: the same one until [`Self::taken`] or [`Self::release`] is called. Frames of
    /// other queues may overtake one that waits for room. Its receiver has no part of it then,
    /// because frames have no offloads.
    pub fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        for _ in 0..self.sources.len() {
            if self.sources[self.current].receiver.has_frame()? {
                break;
            }
            self.go_on();
        }
        let frame = self.sources[self.current].receiver.first()?;
        Ok(frame.map(|frame| (NO_OFFLOADS, frame)))
    }

    /// Tells whether there is a frame, or a damaged ring.
    pub fn has_frame(&mut self) -> bool {
        self.sources.iter_mut().any(|source| source.receiver.has_frame().unwrap_or(true))
    }

    /// Goes on to the next queue.
    fn go_on(&mut self) {
        self.current = (self.current + 1) % self.sources.len();
    }

    /// Goes on to the next frame. The kernel gets the chunks back by [`Self::release`].
    pub fn taken(&mut self) {
        self.sources[self.current].receiver.advance();
    }

    /// Gives the chunks of taken frames back to the kernel: receivers have the frames now. If this
    /// process ends before, the next one delivers them again. The next burst begins with another
    /// queue.
    pub fn release(&mut self) {
        for Source { socket, receiver } in &mut self.sources {
            if receiver.release() {
                // A driver without copies has stopped for want of chunks.
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                let _ = poll(&mut [PollFd::new(&**socket, PollFlags::IN)], Some(&now));
            }
        }
        self.go_on();
    }
}

/// Frames to the card.
#[derive(Debug)]
pub struct Rx {
    port: PortId,
    socket: Arc<ForeignFd>,
    sender: Sender,
    wire: Wire,
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
        if *self.wire.state() != State::Up || self.sender.free() == 0 {
            self.call();
        }
        match self.wire.state() {
            State::Gone(why) => return Put::Failed(Failure::Gone(why.clone())),
            State::Down(_) => return Put::Refused(DropReason::PortDown),
            State::Up => {}
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
        self.wire.next_call(waits, now)
    }

    /// Tells once that there is room for many frames again after there was none.
    pub fn has_room_again(&mut self) -> bool {
        self.full && self.sender.free() >= self.sender.chunks() / 4 && std::mem::take(&mut self.full)
    }

    /// Has the kernel send what it will take, and takes chunks back. Nothing is sent by a socket
    /// that was given up.
    fn call(&mut self) {
        if matches!(self.wire.state(), State::Gone(_)) {
            return;
        }
        self.sender.publish();
        while self.call_once() {}
        if let State::Gone(why) = self.wire.state() {
            warn!(port = self.port.0, why, "the XDP socket is given up");
        }
    }

    /// Does one step of that. Returns `true` if there may be more to do.
    fn call_once(&mut self) -> bool {
        let waiting = self.sender.waiting();
        let is_called = waiting > 0 && self.sender.needs_wake_up();
        // Fails with EAGAIN behind as many frames as one call sends, and if the card is busy.
        let answer = if is_called { send(&*self.socket, &[], SendFlags::DONTWAIT) } else { Ok(0) };
        let Ok(collected) = self.sender.collect() else {
            self.wire.give_up(Damaged.to_string());
            return false;
        };
        let has_progress = collected > 0 || self.sender.waiting() < waiting;
        if is_called {
            return self.wire.called(answer.map(drop), has_progress, Instant::now());
        }
        if has_progress {
            self.wire.progressed();
        }
        if waiting == 0 {
            self.wire.nothing_waits();
        }
        false
    }
}
