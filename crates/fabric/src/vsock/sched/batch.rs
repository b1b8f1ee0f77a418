//! Merging of small packets: which waiting packets of a flow become one packet for its receiver.

use taut_virtq::socket_header::{SEQ_EOM, SEQ_EOR};

use crate::vsock::proto::{Flow, PacketSlots, SocketType};

/// Most packets of a flow that become one.
const MAX_MERGED: usize = 64;

/// A part of a waiting packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    /// Number of the packet.
    pub(crate) packet: u16,
    /// Payload bytes in front of the part.
    pub(crate) offset: u32,
    /// Payload bytes of the part.
    pub(crate) len: u32,
}

/// The parts of waiting packets that become one packet for the receiver. Packets of a byte stream
/// are merged; of other sockets each packet keeps its end.
#[derive(Debug)]
pub(crate) struct Batch {
    parts: [Part; MAX_MERGED],
    count: usize,
    /// Payload bytes of all parts.
    pub(crate) bytes: u32,
    /// Packets that are used up by the batch.
    pub(crate) whole: usize,
    /// Flags of the header: the end of a message or a record.
    pub(crate) flags: u32,
}

impl Batch {
    /// Collects at most `most` bytes of a flow's waiting packets.
    #[inline]
    pub(crate) fn collect(flow: &Flow, socket_type: SocketType, slots: &PacketSlots, most: u32) -> Self {
        let parts = [Part::default(); MAX_MERGED];
        let mut batch = Self { parts, count: 0, bytes: 0, whole: 0, flags: 0 };
        let is_stream = socket_type == SocketType::Stream;
        for (packet, queued) in flow.packets.iter(slots) {
            let offset = if batch.count == 0 { flow.offset } else { 0 };
            let len = (queued.len - offset).min(most - batch.bytes);
            batch.parts[batch.count] = Part { packet, offset, len };
            batch.count += 1;
            batch.bytes += len;
            if offset + len < queued.len {
                break;
            }
            batch.whole += 1;
            if !is_stream {
                batch.flags = queued.flags & (SEQ_EOM | SEQ_EOR);
            }
            if batch.bytes == most || batch.count == MAX_MERGED || !is_stream {
                break;
            }
        }
        batch
    }

    /// The parts that have payload.
    #[inline]
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        self.parts[..self.count].iter().copied().filter(|part| part.len > 0)
    }

    /// Bytes of the first packet that is left which the batch has used.
    #[inline]
    pub(crate) fn next_offset(&self) -> u32 {
        match self.parts[self.count - 1] {
            Part { offset, len, .. } if self.whole < self.count => offset + len,
            _ => 0,
        }
    }
}
