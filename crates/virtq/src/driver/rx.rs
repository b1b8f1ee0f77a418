//! The driver end of a receive queue, with its buffers.

use super::buffers::Buffers;
use super::{QueueLayout, Ram, Ring, Used, UsedFault};
use crate::fault::QueueError;
use crate::header::{self, NetHeader};

/// A receive queue with one buffer per descriptor, all of them posted.
#[derive(Debug)]
pub struct RxDriver {
    ring: Ring,
    buffers: Buffers,
}

impl RxDriver {
    /// Sets the driver end up and posts buffers of `buffer_len` bytes (at least a header's) out of `ram`; `None` when
    /// that is used up. The device sees them after [`Ring::publish`].
    pub fn new(
        ram: &mut Ram,
        layout: QueueLayout,
        features: u64,
        buffer_len: u32,
    ) -> Result<Option<Self>, QueueError> {
        let ring = Ring::new(ram.memory(), layout, features)?;
        let Some(buffers) = Buffers::allocate(ram, layout.size, buffer_len) else { return Ok(None) };
        let mut driver = Self { ring, buffers };
        for _ in 0..layout.size {
            driver.post();
        }
        Ok(Some(driver))
    }

    /// The ring: to publish, and for notifications.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Takes a frame out, if one has arrived, and posts its buffers again (published by [`Ring::publish`]). `frame` is
    /// replaced by the frame's bytes.
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> Result<Option<NetHeader>, UsedFault> {
        let Some(Used { head, written }) = self.ring.poll_used()? else { return Ok(None) };
        let room = self.buffers.len();
        if written > room || (written as usize) < header::LEN {
            return Err(UsedFault::Length { written, room });
        }
        let mut buffer = self.buffers.at(head);
        let mut bytes = [0; header::LEN];
        buffer.read_array(&mut bytes);
        let header = NetHeader::from_bytes(&bytes);
        frame.clear();
        frame.resize(written as usize - header::LEN, 0);
        buffer.read(frame);
        self.post();
        for returned in 1..header.num_buffers {
            let missing = UsedFault::Missing { returned, announced: header.num_buffers };
            let Used { head, written } = self.ring.poll_used()?.ok_or(missing)?;
            if written > room {
                return Err(UsedFault::Length { written, room });
            }
            let start = frame.len();
            frame.resize(start + written as usize, 0);
            self.buffers.at(head).read(&mut frame[start..]);
            self.post();
        }
        Ok(Some(header))
    }

    /// Posts the next free descriptor with its buffer.
    fn post(&mut self) {
        let Some(index) = self.ring.next_free(1).next() else { return };
        let part = self.buffers.part(index, self.buffers.len(), true);
        self.ring.add(std::iter::once(part));
    }
}
