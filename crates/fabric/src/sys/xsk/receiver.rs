//! The receiving side: frames from the receive ring, whose chunks go back by the fill ring.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::net::xdp::{XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING};
use taut_api::fabric::message::XdpSocket;

use super::Damaged;
use super::chunks::{ChunkIdx, Chunks};
use super::ring::{Descriptor, Ring};

/// Received frames, in their order.
///
/// The index of the fill ring's producer is always that of the receive ring's consumer plus the
/// number of chunks: each frame that is read gives its chunk back.
#[derive(Debug)]
pub struct Receiver {
    frames: Ring<Descriptor>,
    fill: Ring<u64>,
    chunks: Arc<Chunks>,
    /// Index of the first frame whose chunk was not given back.
    taken: u32,
    /// Number of frames after it that were read.
    read: u32,
    /// Number of frames that were seen to be there and are not read.
    ready: u32,
}

impl Receiver {
    /// Maps the rings of a socket, and completes what a predecessor has begun. Gives all chunks to
    /// the kernel if there was none.
    ///
    /// # Errors
    /// The shape is impossible, or the rings are damaged.
    pub fn map(socket: impl AsFd, setup: &XdpSocket, chunks: Arc<Chunks>) -> io::Result<Self> {
        let frames = Ring::map(&socket, XDP_PGOFF_RX_RING, setup.receive)?;
        let fill = Ring::map(&socket, XDP_UMEM_PGOFF_FILL_RING, setup.fill)?;
        let count = chunks.shape().receiving;
        if frames.entries() < count || fill.entries() < count {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let taken = chunks.taken().load(Acquire);
        if [taken, fill.producer().load(Acquire), frames.consumer().load(Acquire)] == [0; 3] {
            for index in 0..count {
                fill.write(index, chunks.address(ChunkIdx(index)));
            }
        }
        // Checks that `taken`, which the predecessor has left in the shared memory, fits the ring,
        // before the kernel is given indices that follow from it.
        frames.ready(taken).map_err(io::Error::other)?;
        let receiver = Self { frames, fill, chunks, taken, read: 0, ready: 0 };
        receiver.give_back();
        Ok(receiver)
    }

    /// Sets both indices that follow from the number of frames that were given back.
    fn give_back(&self) {
        self.frames.release(self.taken);
        self.fill.publish(self.taken.wrapping_add(self.chunks.shape().receiving));
    }

    /// Index of the first frame that was not read.
    fn next(&self) -> u32 {
        self.taken.wrapping_add(self.read)
    }

    /// Tells whether there is a frame that was not read yet.
    ///
    /// # Errors
    /// The ring is damaged.
    pub fn has_frame(&mut self) -> Result<bool, Damaged> {
        if self.ready == 0 {
            self.ready = self.frames.ready(self.next())?;
        }
        Ok(self.ready > 0)
    }

    /// Returns the oldest frame that was not read yet, the same one until [`Self::advance`] is
    /// called.
    ///
    /// # Errors
    /// The ring is damaged.
    pub fn first(&mut self) -> Result<Option<&[u8]>, Damaged> {
        if !self.has_frame()? {
            return Ok(None);
        }
        let next = self.next();
        let Descriptor { address, len, .. } = self.frames.read(next);
        // SAFETY: the chunk is given back by `release` after `advance`. Both need `&mut self` and
        // so end this borrow.
        unsafe { self.chunks.frame(address, len) }.map(Some).ok_or(Damaged)
    }

    /// Goes on to the next frame. The chunk of the one that [`Self::first`] returned belongs to
    /// this process until [`Self::release`] is called, so that a successor would find the frame.
    pub fn advance(&mut self) {
        if self.ready > 0 {
            self.ready -= 1;
            self.read += 1;
        }
    }

    /// Gives the chunks of all frames that were read back to the kernel. Returns `true` if the
    /// kernel has to be called, because it waits for them.
    pub fn release(&mut self) -> bool {
        let read = std::mem::take(&mut self.read);
        if read == 0 {
            return false;
        }
        let count = self.chunks.shape().receiving;
        for index in (0..read).map(|read| self.taken.wrapping_add(read)) {
            // The chunk that the frame was in, which was checked when the frame was read.
            let chunk = self.frames.read(index).address & !(u64::from(self.chunks.shape().chunk) - 1);
            self.fill.write(index.wrapping_add(count), chunk);
        }
        self.taken = self.taken.wrapping_add(read);
        // A successor of a process that ends behind this line does the same two stores.
        self.chunks.taken().store(self.taken, Release);
        self.give_back();
        self.fill.needs_wake_up()
    }

    /// Returns the number of chunks that are in neither ring. The kernel has them if it does not
    /// copy; else they are lost.
    pub fn missing(&self) -> u32 {
        let count = self.chunks.shape().receiving;
        let mut found = vec![false; count as usize];
        // The fill ring first: the kernel puts a frame into the receive ring before it moves the
        // fill ring's index.
        let given = self.taken.wrapping_add(count);
        let filled = given.wrapping_sub(self.fill.consumer().load(Acquire)).min(count);
        let ready = self.frames.ready(self.taken).unwrap_or(0);
        let in_fill = (1..=filled).map(|before| self.fill.read(given.wrapping_sub(before)));
        let received = (0..ready).map(|after| self.frames.read(self.taken.wrapping_add(after)).address);
        for ChunkIdx(index) in in_fill.chain(received).filter_map(|address| self.chunks.find(address, true)) {
            found[index as usize] = true;
        }
        found.iter().filter(|found| !**found).count() as u32
    }
}
