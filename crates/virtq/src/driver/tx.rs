//! The driver end of a transmit queue, with its buffers.

use super::buffers::Buffers;
use super::{QueueLayout, Ram, Ring, UsedFault};
use crate::fault::QueueError;
use crate::header::{self, NetHeader};

/// A transmit queue with one buffer per descriptor; longer frames take several.
#[derive(Debug)]
pub struct TxDriver {
    ring: Ring,
    buffers: Buffers,
    /// Descriptors of the frame being written.
    chain: Vec<u16>,
}

impl TxDriver {
    /// Sets the driver end up, with buffers of `buffer_len` bytes (at least a header's) out of `ram`; `None` when that
    /// is used up.
    pub fn new(
        ram: &mut Ram,
        layout: QueueLayout,
        features: u64,
        buffer_len: u32,
    ) -> Result<Option<Self>, QueueError> {
        let ring = Ring::new(ram.memory(), layout, features)?;
        let Some(buffers) = Buffers::allocate(ram, layout.size, buffer_len) else { return Ok(None) };
        Ok(Some(Self { ring, buffers, chain: Vec::with_capacity(layout.size.into()) }))
    }

    /// The ring: to publish, and for notifications.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Could a frame of `len` bytes be sent now?
    pub fn has_room(&self, len: usize) -> bool {
        (header::LEN + len).div_ceil(self.buffers.len() as usize) <= self.ring.free()
    }

    /// Copies a frame into buffers and makes them available; the device sees it after [`Ring::publish`]. False, and
    /// nothing done, when there are not enough buffers.
    pub fn send(&mut self, header: &NetHeader, mut frame: &[u8]) -> bool {
        if !self.has_room(frame.len()) {
            return false;
        }
        let step = self.buffers.len() as usize;
        let total = header::LEN + frame.len();
        self.chain.clear();
        self.chain.extend(self.ring.next_free(total.div_ceil(step)));
        for (position, &index) in self.chain.iter().enumerate() {
            let mut buffer = self.buffers.at(index);
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
            self.buffers.part(index, len, false)
        });
        self.ring.add(parts).is_some()
    }

    /// Takes back the buffers of frames that the device is done with; returns how many frames.
    pub fn reclaim(&mut self) -> Result<usize, UsedFault> {
        let mut count = 0;
        while self.ring.poll_used()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}
