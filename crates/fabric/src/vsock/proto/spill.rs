//! Payload that was copied out of its sender's ring, because its receiver takes nothing and the
//! ring is needed for other connections.
//!
//! How much it can be is bounded by what was promised for the receiver ([`Pledged`]): only bytes
//! that the sender was promised are copied.
//!
//! [`Pledged`]: super::Pledged

use std::collections::VecDeque;

use super::socket_type::SocketType;

/// Most records of one flow. More stay in their sender's ring: a record without payload needs no
/// promise.
pub(crate) const MAX_RECORDS: usize = 1024;

/// A packet, or the rest of one. The packets of a byte stream are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Payload bytes that the receiver has not got.
    pub(crate) len: u32,
    /// Flags of the packet's header.
    pub(crate) flags: u32,
}

/// The oldest bytes of a spill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Front<'a> {
    /// The bytes, in two parts.
    pub(crate) bytes: [&'a [u8]; 2],
    /// Flags for the header of a packet with these bytes.
    pub(crate) flags: u32,
}

/// Payload of one flow, older than what is in its sender's ring.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    bytes: VecDeque<u8>,
    records: VecDeque<Record>,
}

impl Spill {
    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records, the oldest first.
    pub(crate) fn records(&self) -> impl ExactSizeIterator<Item = Record> {
        self.records.iter().copied()
    }

    /// All bytes, in two parts.
    pub(crate) fn bytes(&self) -> [&[u8]; 2] {
        let (first, second) = self.bytes.as_slices();
        [first, second]
    }

    /// Tells whether one more packet may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.records.len() < MAX_RECORDS
    }

    /// Adds the payload of a packet.
    pub(crate) fn push(&mut self, payload: &[u8], flags: u32, socket_type: SocketType) {
        // A deque that grows by itself would take up to twice as much memory.
        self.bytes.reserve_exact(payload.len());
        self.bytes.extend(payload);
        let len = payload.len() as u32;
        match self.records.back_mut() {
            Some(last) if socket_type == SocketType::Stream => last.len += len,
            _ if socket_type == SocketType::Stream && len == 0 => {}
            _ => self.records.push_back(Record { len, flags }),
        }
    }

    /// Payload bytes of the first record.
    pub(crate) fn first_len(&self) -> u32 {
        self.records.front().map_or(0, |record| record.len)
    }

    /// At most `most` bytes of the first record.
    pub(crate) fn front(&self, most: u32) -> Option<Front<'_>> {
        let record = self.records.front()?;
        let len = record.len.min(most) as usize;
        let (first, second) = self.bytes.as_slices();
        let in_first = len.min(first.len());
        let bytes = [&first[..in_first], &second[..len - in_first]];
        // The end of a record is with its last bytes.
        Some(Front { bytes, flags: if len == record.len as usize { record.flags } else { 0 } })
    }

    /// Removes bytes that [`Self::front`] has returned.
    pub(crate) fn remove(&mut self, len: u32) {
        self.bytes.drain(..len as usize);
        let Some(first) = self.records.front_mut() else { return };
        first.len -= len;
        if first.len == 0 {
            self.records.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(spill: &mut Spill, most: u32) -> Vec<(Vec<u8>, u32)> {
        let mut packets = Vec::new();
        while let Some(Front { bytes, flags }) = spill.front(most) {
            let bytes = bytes.concat();
            packets.push((bytes.clone(), flags));
            spill.remove(bytes.len() as u32);
        }
        assert_eq!((spill.is_empty(), spill.bytes()), (true, [&[][..]; 2]));
        packets
    }

    #[test]
    fn a_stream_is_one_run_of_bytes() {
        let mut spill = Spill::default();
        spill.push(b"", 0, SocketType::Stream);
        assert!(spill.is_empty());
        spill.push(b"abc", 0, SocketType::Stream);
        spill.push(b"defg", 0, SocketType::Stream);
        assert_eq!((spill.first_len(), spill.len()), (7, 7));
        assert_eq!(all(&mut spill, 4), [(b"abcd".to_vec(), 0), (b"efg".to_vec(), 0)]);
    }

    #[test]
    fn records_keep_their_ends() {
        let mut spill = Spill::default();
        for (bytes, flags) in [(&b"abc"[..], 1), (b"", 1), (b"de", 3)] {
            spill.push(bytes, flags, SocketType::SeqPacket);
        }
        let expected = [(&b"ab"[..], 0), (b"c", 1), (b"", 1), (b"de", 3)];
        assert_eq!(all(&mut spill, 2), expected.map(|(bytes, flags)| (bytes.to_vec(), flags)));
    }
}
