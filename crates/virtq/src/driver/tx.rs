//! The driver end of a transmit queue, with its buffers.

use super::buffers::{Queue, SetUp};
use super::{QueueLayout, Ram, Ring, UsedFault};
use crate::header::{self, NetHeader};

/// A transmit queue with one buffer per descriptor; longer frames take several.
#[derive(Debug)]
pub struct TxDriver {
    queue: Queue,
    /// Descriptors of the frame being written.
    chain: Vec<u16>,
}

impl TxDriver {
    /// Sets up the driver end with buffers of `buffer_len` bytes, at least as long as a header, out
    /// of `ram`; `None` when `ram` is used up.
    pub fn new(ram: &mut Ram, layout: QueueLayout, features: u64, buffer_len: u32) -> SetUp<Self> {
        let chain = Vec::with_capacity(layout.size.into());
        Ok(Queue::new(ram, layout, features, buffer_len)?.map(|queue| Self { queue, chain }))
    }

    /// The ring: to publish, and for notifications.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.queue.ring
    }

    /// Tells whether there are enough free buffers for a frame of `len` bytes.
    pub fn has_room(&self, len: usize) -> bool {
        (header::LEN + len).div_ceil(self.queue.buffers.len() as usize) <= self.queue.ring.free()
    }

    /// Copies a frame into buffers and makes them available. The device sees the frame after
    /// [`Ring::publish`]. Returns false and does nothing when there are not enough buffers.
    pub fn send(&mut self, header: &NetHeader, mut frame: &[u8]) -> bool {
        if !self.has_room(frame.len()) {
            return false;
        }
        let step = self.queue.buffers.len() as usize;
        let total = header::LEN + frame.len();
        self.chain.clear();
        self.chain.extend(self.queue.ring.next_free(total.div_ceil(step)));
        for (position, &index) in self.chain.iter().enumerate() {
            let mut buffer = self.queue.buffers.at(index);
            let mut room = step;
            if position == 0 {
                buffer.write_array(&header.to_bytes());
                room -= header::LEN;
            }
            let (now, later) = frame.split_at(frame.len().min(room));
            buffer.write(now);
            frame = later;
        }
        let parts = self.chain.iter().enumerate().map(|(position, &index)| {
            let len = (total - position * step).min(step) as u32;
            self.queue.buffers.part(index, len, false)
        });
        self.queue.ring.add(parts).is_some()
    }

    /// Takes back the buffers of frames that the device is done with. Returns the number of frames.
    pub fn reclaim(&mut self) -> Result<usize, UsedFault> {
        self.queue.reclaim()
    }
}
