//! The driver end of a socket device's two data queues, with their buffers.

use std::sync::Arc;

use super::buffers::{Queue, SetUp};
use super::{QueueLayout, Ram, Ring, Used, UsedFault};
use crate::features;
use crate::memory::{Buffer, GuestMemory};
use crate::ring::Part;
use crate::socket_header::{self, LEN, SocketHeader};

/// How a packet is cut into the parts of a chain. Chains of several parts are indirect tables if
/// `INDIRECT_DESC` was negotiated, as in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Header and payload in one buffer without a gap, as newer kernels post to receive.
    Whole,
    /// One part for the header and one for the payload, as kernels send.
    Apart,
    /// One part for the header, then the payload in parts of at most this many bytes, such as
    /// pages.
    Pieces(u32),
}

impl Shape {
    /// Offset of the payload in the buffer of a packet. The payload begins on a cache line of its
    /// own if the header is a part of its own.
    fn payload_at(self) -> usize {
        if self == Self::Whole { LEN } else { 64 }
    }

    /// Number of parts for `payload` bytes.
    fn parts(self, payload: usize) -> usize {
        match self {
            Self::Whole => 1,
            Self::Apart => 1 + usize::from(payload > 0),
            Self::Pieces(most) => 1 + payload.div_ceil(most as usize),
        }
    }

    /// The parts of a packet whose buffer is at `addr`.
    fn cut(self, addr: u64, payload: u32, writable: bool) -> Cut {
        let most = match self {
            Self::Pieces(most) => most,
            _ => payload,
        };
        let behind = addr + self.payload_at() as u64;
        let header = LEN as u32 + if self == Self::Whole { payload } else { 0 };
        let left = if self == Self::Whole { 0 } else { payload };
        Cut { next: Part { addr, len: header, writable }, behind, left, most, done: false }
    }
}

/// The parts of one packet.
#[derive(Debug, Clone)]
struct Cut {
    next: Part,
    /// Address of the part behind the next one.
    behind: u64,
    /// Number of bytes behind the next part.
    left: u32,
    most: u32,
    done: bool,
}

impl Iterator for Cut {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if self.done {
            return None;
        }
        let part = self.next;
        let len = self.left.min(self.most);
        self.next = Part { addr: self.behind, len, ..part };
        self.behind += u64::from(len);
        self.left -= len;
        self.done = len == 0;
        Some(part)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let behind = self.left.div_ceil(self.most.max(1)) as usize;
        let count = if self.done { 0 } else { 1 + behind };
        (count, Some(count))
    }
}

impl ExactSizeIterator for Cut {}

/// A queue of packets. A packet lies in the buffer of its chain's head.
#[derive(Debug)]
struct PacketQueue {
    memory: Arc<GuestMemory>,
    queue: Queue,
    shape: Shape,
    /// Most payload bytes of a packet.
    most: u32,
    /// Address of the first indirect table and length of each table. There is one table for each
    /// descriptor.
    tables: Option<(u64, u64)>,
    parts: Vec<Part>,
}

impl PacketQueue {
    fn new(ram: &mut Ram, layout: QueueLayout, features: u64, shape: Shape, most: u32) -> SetUp<Self> {
        let len = shape.payload_at() as u32 + most;
        let Some(queue) = Queue::new(ram, layout, features, len)? else { return Ok(None) };
        let parts = shape.parts(most as usize);
        let mut tables = None;
        if features & features::INDIRECT_DESC != 0 && parts > 1 {
            let len = 16 * parts as u64;
            let Some(start) = ram.allocate(len * u64::from(layout.size), 16) else { return Ok(None) };
            tables = Some((start, len));
        }
        let memory = Arc::clone(ram.memory());
        let parts = Vec::with_capacity(parts);
        Ok(Some(Self { memory, queue, shape, most, tables, parts }))
    }

    /// Number of descriptors that a packet takes.
    fn descriptors(&self, payload: usize) -> usize {
        if self.tables.is_some() { 1 } else { self.shape.parts(payload) }
    }

    /// The slot that the next chain begins with, if there is room for a packet.
    fn next(&self, payload: usize) -> Option<u16> {
        let room = self.descriptors(payload) <= self.queue.ring.free();
        self.queue.ring.next_free(1).next().filter(|_| room)
    }

    /// Makes the packet in the buffer of `head`, the next slot, available.
    fn add(&mut self, head: u16, payload: u32, writable: bool) -> bool {
        let addr = self.queue.buffers.part(head, 0, writable).addr;
        let cut = self.shape.cut(addr, payload, writable);
        let added = match self.tables {
            Some((start, len)) if cut.len() > 1 => {
                self.parts.clear();
                self.parts.extend(cut);
                self.queue.ring.add_indirect(&self.memory, start + len * u64::from(head), &self.parts)
            }
            _ => self.queue.ring.add(cut),
        };
        debug_assert!(added.is_none_or(|added| added == head));
        added.is_some()
    }
}

/// A transmit queue.
#[derive(Debug)]
pub struct SocketTxDriver {
    packets: PacketQueue,
}

impl SocketTxDriver {
    /// Sets up the driver end with buffers out of `ram` for packets of up to `payload` bytes;
    /// `None` when `ram` is used up.
    pub fn new(ram: &mut Ram, layout: QueueLayout, features: u64, shape: Shape, payload: u32) -> SetUp<Self> {
        Ok(PacketQueue::new(ram, layout, features, shape, payload)?.map(|packets| Self { packets }))
    }

    /// The ring: to publish, and for notifications.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.packets.queue.ring
    }

    /// Tells whether there is room for a packet with `payload` bytes.
    pub fn has_room(&self, payload: usize) -> bool {
        self.packets.next(payload).is_some()
    }

    /// Copies a packet into a buffer and makes it available. The device sees the packet after
    /// [`Ring::publish`]. The pieces of `payload` are joined, and `len` of the header is set to
    /// their sum. Returns false and does nothing when the ring is full.
    ///
    /// # Panics
    /// If the payload is longer than the buffers were made for.
    pub fn send(&mut self, header: SocketHeader, payload: &[&[u8]]) -> bool {
        let len = payload.iter().map(|piece| piece.len()).sum::<usize>();
        self.send_with(header, len as u32, |buffer| {
            for piece in payload {
                buffer.write(piece);
            }
        })
    }

    /// As [`Self::send`], with the payload that an earlier packet left in the buffer, or zeros. No
    /// payload is copied.
    ///
    /// # Panics
    /// If `len` is more than the buffers were made for.
    pub fn send_as_it_is(&mut self, header: SocketHeader, len: u32) -> bool {
        self.send_with(header, len, |_| {})
    }

    fn send_with(&mut self, header: SocketHeader, len: u32, fill: impl FnOnce(&mut Buffer<'_>)) -> bool {
        let most = self.packets.most;
        assert!(len <= most, "a payload of {len} bytes in buffers for {most}");
        let Some(head) = self.packets.next(len as usize) else { return false };
        let mut buffer = self.packets.queue.buffers.at(head);
        buffer.write_array(&SocketHeader { len, ..header }.to_bytes());
        buffer.skip(self.packets.shape.payload_at() - LEN);
        fill(&mut buffer);
        self.packets.add(head, len, false)
    }

    /// Takes back the buffers of packets that the device is done with. Returns the number of
    /// packets.
    pub fn reclaim(&mut self) -> Result<usize, UsedFault> {
        self.packets.queue.reclaim()
    }
}

/// A receive queue, all of its buffers posted.
#[derive(Debug)]
pub struct SocketRxDriver {
    packets: PacketQueue,
}

impl SocketRxDriver {
    /// Sets up the driver end and posts as many buffers out of `ram` as the ring has room for, each
    /// for a packet of up to `payload` bytes; `None` when `ram` is used up. The device sees the
    /// buffers after [`Ring::publish`].
    pub fn new(ram: &mut Ram, layout: QueueLayout, features: u64, shape: Shape, payload: u32) -> SetUp<Self> {
        let packets = PacketQueue::new(ram, layout, features, shape, payload)?;
        Ok(packets.map(|packets| {
            let mut driver = Self { packets };
            while driver.post() {}
            driver
        }))
    }

    /// The ring: to publish, and for notifications.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.packets.queue.ring
    }

    /// Passes the next packet to `f`, if one has arrived, and posts its buffer again. The device
    /// sees the buffer after [`Ring::publish`].
    pub fn receive<T>(
        &mut self,
        f: impl FnOnce(SocketHeader, &mut Payload<'_>) -> T,
    ) -> Result<Option<T>, UsedFault> {
        let Some(Used { head, written }) = self.packets.queue.ring.poll_used()? else { return Ok(None) };
        let room = LEN as u32 + self.packets.most;
        let Some(most) = written.checked_sub(LEN as u32).filter(|&most| most <= self.packets.most) else {
            return Err(UsedFault::Length { written, room });
        };
        let mut buffer = self.packets.queue.buffers.at(head);
        let mut bytes = [0; socket_header::LEN];
        buffer.read_array(&mut bytes);
        buffer.skip(self.packets.shape.payload_at() - LEN);
        let header = SocketHeader::from_bytes(&bytes);
        if header.len > most {
            return Err(UsedFault::Length { written: header.len.saturating_add(LEN as u32), room: written });
        }
        let done = f(header, &mut Payload { buffer, left: header.len as usize });
        self.post();
        Ok(Some(done))
    }

    /// Posts the next free buffer, if there is one.
    fn post(&mut self) -> bool {
        let most = self.packets.most;
        self.packets.next(most as usize).is_some_and(|head| self.packets.add(head, most, true))
    }
}

/// The payload of a packet, still in its buffer.
#[derive(Debug)]
pub struct Payload<'a> {
    buffer: Buffer<'a>,
    left: usize,
}

impl Payload<'_> {
    /// Number of bytes that were not read yet.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Copies the next bytes to `out`. Returns how many. Bytes that are never read are lost.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let len = self.left.min(out.len());
        let done = self.buffer.read(&mut out[..len]);
        self.left -= done;
        done
    }
}
