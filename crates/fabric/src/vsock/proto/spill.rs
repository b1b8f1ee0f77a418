//! Payload that was copied out of its sender's ring, because its receiver takes nothing and the
//! ring is needed for other connections.
//!
//! How much it can be is bounded by what was promised for a receiving guest ([`Pledged`]), or by
//! the credit that was given for a program on the host. A promise of 256 KiB may be used for as
//! many records of one byte. So the end of a record is kept in as few bytes as its payload, or
//! fewer.
//!
//! [`Pledged`]: super::Pledged

use std::collections::VecDeque;

use taut_virtq::socket_header::{SEQ_EOM, SEQ_EOR};

use super::socket_type::SocketType;

/// Most records without payload of one flow. More stay in their sender's ring, because they need no
/// promise.
pub(crate) const MAX_EMPTY: usize = 1024;

/// Memory in bytes that a spill keeps beyond twice its length.
const MIN_SHRUNK: usize = 4096;

/// A packet, or the rest of one. The packets of a byte stream are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Payload bytes that the receiver has not got.
    pub(crate) len: u32,
    /// Flags of the packet's header: the end of a message or a record.
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
    /// The oldest record.
    first: Option<Record>,
    /// The records behind it, encoded by [`encode`].
    behind: VecDeque<u8>,
    /// Number of all records.
    count: usize,
    /// Number of records that came without payload.
    empty: usize,
}

impl Spill {
    /// Number of payload bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Number of records.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The records, the oldest first.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        let mut behind = self.behind.iter().copied();
        self.first.into_iter().chain(std::iter::from_fn(move || decode(&mut behind)))
    }

    /// All payload bytes, in two parts.
    pub(crate) fn bytes(&self) -> [&[u8]; 2] {
        let (first, second) = self.bytes.as_slices();
        [first, second]
    }

    /// Tells whether one more packet, with `len` bytes of payload, may be added.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        len > 0 || self.empty < MAX_EMPTY
    }

    /// Adds the payload of a packet.
    pub(crate) fn push(&mut self, payload: &[u8], flags: u32, socket_type: SocketType) {
        reserve(&mut self.bytes, payload.len());
        self.bytes.extend(payload);
        let record = Record { len: payload.len() as u32, flags: flags & (SEQ_EOM | SEQ_EOR) };
        match &mut self.first {
            Some(all) if socket_type == SocketType::Stream => all.len += record.len,
            None if socket_type == SocketType::Stream => {
                self.first = Some(Record { flags: 0, ..record }).filter(|all| all.len > 0);
                self.count = usize::from(self.first.is_some());
            }
            first => {
                match first {
                    None => *first = Some(record),
                    Some(_) => encode(record, &mut self.behind),
                }
                self.count += 1;
                self.empty += usize::from(record.len == 0);
            }
        }
    }

    /// Payload bytes of the first record.
    pub(crate) fn first_len(&self) -> u32 {
        self.first.map_or(0, |record| record.len)
    }

    /// At most `most` bytes of the first record.
    pub(crate) fn front(&self, most: u32) -> Option<Front<'_>> {
        let record = self.first?;
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
        shrink(&mut self.bytes);
        let Some(first) = &mut self.first else { return };
        first.len -= len;
        if first.len == 0 {
            self.count -= 1;
            self.empty -= usize::from(len == 0);
            self.first = decode(&mut std::iter::from_fn(|| self.behind.pop_front()));
        }
    }
}

/// Makes room for `more` bytes. A deque that grows by itself would take up to twice as much memory
/// as it needs; this one takes an eighth more.
fn reserve(deque: &mut VecDeque<u8>, more: usize) {
    if deque.capacity() - deque.len() < more {
        deque.reserve_exact(more.max(deque.len() / 8));
    }
}

/// Gives back memory of a deque that has become much shorter: bounds of what is copied count
/// lengths.
fn shrink(deque: &mut VecDeque<u8>) {
    if deque.capacity() > 2 * deque.len() + MIN_SHRUNK {
        deque.shrink_to(deque.len() + deque.len() / 8);
    }
}

/// Appends a record: its length and two bits of flags as one number, seven bits a byte, the lowest
/// first. All bytes but the last have their highest bit set.
fn encode(record: Record, to: &mut VecDeque<u8>) {
    let mut number = u64::from(record.len) << 2 | u64::from(record.flags);
    while number >= 0x80 {
        reserve(to, 1);
        to.push_back(number as u8 | 0x80);
        number >>= 7;
    }
    reserve(to, 1);
    to.push_back(number as u8);
}

/// Takes the next record out of bytes that [`encode`] has made.
fn decode(bytes: &mut impl Iterator<Item = u8>) -> Option<Record> {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    Some(Record { len: (number >> 2) as u32, flags: number as u32 & (SEQ_EOM | SEQ_EOR) })
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

    #[test]
    fn records_of_any_length_are_decoded_as_they_were() {
        let mut spill = Spill::default();
        let lens = (0..9).chain([31, 32, 127, 128, 4095, 4096, 65_535, 65_536, 1 << 20]);
        let records: Vec<_> = lens.zip((0..4).cycle()).map(|(len, flags)| Record { len, flags }).collect();
        for record in &records {
            spill.push(&vec![record.flags as u8; record.len as usize], record.flags, SocketType::SeqPacket);
        }
        assert_eq!((spill.records().collect::<Vec<_>>(), spill.count()), (records.clone(), records.len()));
        for record in records {
            let Front { bytes, flags } = spill.front(u32::MAX).unwrap();
            assert_eq!((bytes.concat().len(), flags), (record.len as usize, record.flags));
            spill.remove(record.len);
        }
        assert_eq!((spill.is_empty(), spill.count(), spill.empty), (true, 0, 0));
    }

    #[test]
    fn records_of_one_byte_take_little_more_than_two_bytes_each() {
        const COUNT: usize = 256 << 10;
        let mut spill = Spill::default();
        for at in 0..COUNT {
            assert!(spill.has_room(1));
            spill.push(&[at as u8], SEQ_EOM, SocketType::SeqPacket);
        }
        let memory = spill.bytes.capacity() + spill.behind.capacity();
        assert!(memory <= 2 * COUNT * 9 / 8, "{memory} bytes");
        for at in 0..COUNT {
            let Front { bytes, flags } = spill.front(100).unwrap();
            assert_eq!((bytes.concat(), flags), (vec![at as u8], SEQ_EOM));
            spill.remove(1);
        }
        assert!(spill.is_empty());
    }

    #[test]
    fn records_without_payload_are_few() {
        let mut spill = Spill::default();
        for _ in 0..MAX_EMPTY {
            assert!(spill.has_room(0));
            spill.push(b"", SEQ_EOM, SocketType::SeqPacket);
        }
        assert!(!spill.has_room(0) && spill.has_room(1));
        spill.push(b"abc", SEQ_EOM, SocketType::SeqPacket);
        spill.remove(0);
        assert!(spill.has_room(0));
        assert_eq!(all(&mut spill, 2).len(), MAX_EMPTY - 1 + 2);
        assert_eq!(spill.empty, 0);
    }

    #[test]
    fn memory_of_what_was_taken_is_given_back() {
        let mut spill = Spill::default();
        (0..64).for_each(|_| spill.push(&[7; 4096], 0, SocketType::Stream));
        while spill.len() > 1 {
            spill.remove(4095.min(spill.len() as u32 - 1));
            assert!(spill.bytes.capacity() <= 2 * spill.len() + MIN_SHRUNK);
        }
    }
}
