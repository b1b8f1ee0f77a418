//! The driver end of a receive queue, with its buffers.

use super::buffers::{Queue, SetUp};
use super::{QueueLayout, Ram, Ring, Used, UsedFault};
use crate::header::{self, NetHeader};

/// A receive queue with one buffer per descriptor, all of them posted.
#[derive(Debug)]
pub struct RxDriver {
    queue: Queue,
}

impl RxDriver {
    /// Sets up the driver end and posts buffers of `buffer_len` bytes, at least as long as a
    /// header, out of `ram`; `None` when `ram` is used up. The device sees the buffers after
    /// [`Ring::publish`].
    pub fn new(ram: &mut Ram, layout: QueueLayout, features: u64, buffer_len: u32) -> SetUp<Self> {
        let queue = Queue::new(ram, layout, features, buffer_len)?;
        Ok(queue.map(|queue| {
            let mut driver = Self { queue };
            for _ in 0..layout.size {
                driver.post();
            }
            driver
        }))
    }

    /// The ring: to publish, and for notifications.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.queue.ring
    }

    /// Reads the next frame, if one has arrived, into `frame` and posts its buffers again. The
    /// device sees the buffers after [`Ring::publish`].
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> Result<Option<NetHeader>, UsedFault> {
        let Some(Used { head, written }) = self.queue.ring.poll_used()? else { return Ok(None) };
        let room = self.queue.buffers.len();
        if written > room || (written as usize) < header::LEN {
            return Err(UsedFault::Length { written, room });
        }
        let mut buffer = self.queue.buffers.at(head);
        let mut bytes = [0; header::LEN];
        buffer.read_array(&mut bytes);
        let header = NetHeader::from_bytes(&bytes);
        frame.clear();
        frame.resize(written as usize - header::LEN, 0);
        buffer.read(frame);
        self.post();
        for returned in 1..header.num_buffers {
            let missing = UsedFault::Missing { returned, announced: header.num_buffers };
            let Used { head, written } = self.queue.ring.poll_used()?.ok_or(missing)?;
            if written > room {
                return Err(UsedFault::Length { written, room });
            }
            let start = frame.len();
            frame.resize(start + written as usize, 0);
            self.queue.buffers.at(head).read(&mut frame[start..]);
            self.post();
        }
        Ok(Some(header))
    }

    /// Posts the next free descriptor with its buffer.
    fn post(&mut self) {
        let Some(index) = self.queue.ring.next_free(1).next() else { return };
        let part = self.queue.buffers.part(index, self.queue.buffers.len(), true);
        self.queue.ring.add(std::iter::once(part));
    }
}
