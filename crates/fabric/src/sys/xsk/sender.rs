//! The sending side: frames to the transmit ring, whose chunks come back by the completion ring.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::net::xdp::{XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING};
use taut_api::fabric::message::XdpSocket;

use super::Damaged;
use super::chunks::{ChunkIdx, Chunks};
use super::ring::{Descriptor, Ring};

/// Word of a chunk that nobody has.
const FREE: u32 = 0;

/// Returns the word of a chunk whose frame has this index in the transmit ring: the index's lower
/// 31 bits, and a bit that is set.
const fn on_loan(index: u32) -> u32 {
    index << 1 | 1
}

/// Tells whether the kernel was given the chunk with this word, if it was given the frames before
/// `index`. There are never so many frames on their way that the lost bit would matter.
const fn is_on_loan(word: u32, index: u32) -> bool {
    word != FREE && on_loan(index).wrapping_sub(word).cast_signed() > 0
}

/// Frames to be sent.
#[derive(Debug)]
pub struct Sender {
    frames: Ring<Descriptor>,
    completion: Ring<u64>,
    chunks: Arc<Chunks>,
    /// Chunks that nobody has.
    free: Vec<ChunkIdx>,
    /// Index of the next frame.
    next: u32,
    /// Number of frames before it that the kernel was not shown yet.
    hidden: u32,
    /// Index of the first entry of the completion ring that was not read.
    completed: u32,
}

impl Sender {
    /// Maps the rings of a socket. Finds the chunks that the kernel has not got.
    ///
    /// # Errors
    /// The shape is impossible, or the rings are damaged.
    pub fn map(socket: impl AsFd, setup: &XdpSocket, chunks: Arc<Chunks>) -> io::Result<Self> {
        let frames = Ring::map(&socket, XDP_PGOFF_TX_RING, setup.transmit)?;
        let completion = Ring::map(&socket, XDP_UMEM_PGOFF_COMPLETION_RING, setup.completion)?;
        let shape = chunks.shape();
        if shape.sending == 0 || frames.entries() < shape.sending || completion.entries() < shape.sending {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let next = frames.producer().load(Acquire);
        let completed = completion.consumer().load(Acquire);
        let mut sender = Self {
            frames,
            completion,
            chunks,
            free: Vec::with_capacity(shape.sending as usize),
            next,
            hidden: 0,
            completed,
        };
        sender.collect().map_err(io::Error::other)?;
        sender.free.clear();
        for chunk in (shape.receiving..shape.receiving + shape.sending).rev().map(ChunkIdx) {
            let word = sender.chunks.word(chunk);
            if !is_on_loan(word.load(Acquire), next) {
                word.store(FREE, Release);
                sender.free.push(chunk);
            }
        }
        Ok(sender)
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u32 {
        self.chunks.shape().sending
    }

    /// Number of chunks that nobody has.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Longest frame in bytes.
    pub fn longest(&self) -> usize {
        self.chunks.shape().chunk as usize
    }

    /// Returns the number of chunks that the kernel has not got, and that never come back: those on
    /// loan, less the frames that are not completed yet.
    pub fn missing(&self) -> u32 {
        let on_loan = self.chunks() - self.free();
        on_loan.saturating_sub(self.next.wrapping_sub(self.completed))
    }

    /// Adds a frame of up to [`Self::longest`] bytes, which `fill` writes and whose length it
    /// returns. Returns `false` if no chunk is free. The kernel sees it after [`Self::publish`].
    pub fn put(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(chunk) = self.free.pop() else { return false };
        // SAFETY: the chunk was free, so the kernel has not got it. This is the only reference to
        // it, and ends with the call.
        let bytes = unsafe { self.chunks.free_chunk(chunk) };
        let len = fill(bytes).min(bytes.len()) as u32;
        self.chunks.word(chunk).store(on_loan(self.next), Relaxed);
        let address = self.chunks.address(chunk);
        self.frames.write(self.next, Descriptor { address, len, options: 0 });
        self.next = self.next.wrapping_add(1);
        self.hidden += 1;
        true
    }

    /// Shows the kernel all frames.
    pub fn publish(&mut self) {
        if std::mem::take(&mut self.hidden) > 0 {
            self.frames.publish(self.next);
        }
    }

    /// Returns the number of frames that the kernel was shown and has not taken.
    pub fn waiting(&self) -> u32 {
        let shown = self.next.wrapping_sub(self.hidden);
        shown.wrapping_sub(self.frames.consumer().load(Acquire)).min(self.chunks())
    }

    /// Tells whether the kernel has to be called to take frames.
    pub fn needs_wake_up(&self) -> bool {
        self.frames.needs_wake_up()
    }

    /// Takes chunks back whose frames were sent, and returns their number.
    ///
    /// # Errors
    /// The ring is damaged.
    pub fn collect(&mut self) -> Result<u32, Damaged> {
        let ready = self.completion.ready(self.completed)?;
        if ready == 0 {
            return Ok(0);
        }
        for index in (0..ready).map(|after| self.completed.wrapping_add(after)) {
            let chunk = self.chunks.find(self.completion.read(index), false).ok_or(Damaged)?;
            let word = self.chunks.word(chunk);
            // A predecessor that ended before it moved the index has cleared the word already.
            if word.swap(FREE, Release) != FREE {
                self.free.push(chunk);
            }
        }
        self.completed = self.completed.wrapping_add(ready);
        self.completion.release(self.completed);
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_compared_across_the_end_of_their_range() {
        for next in [1, 1000, 1 << 31, (1 << 31) + 5, u32::MAX, 5] {
            for before in 1..5 {
                assert!(is_on_loan(on_loan(u32::wrapping_sub(next, before)), next), "{next} {before}");
            }
            for after in 0..5 {
                assert!(!is_on_loan(on_loan(next.wrapping_add(after)), next), "{next} {after}");
            }
            assert!(!is_on_loan(FREE, next));
        }
    }
}
