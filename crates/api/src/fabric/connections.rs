//! Connections of VMCI sockets, as the counters file tells any process of them.
//!
//! The fabric writes the addresses of a connection before its first word, which says that the
//! connection exists, and by what each end exchanges its bytes. All other bits and words are for
//! the next fabric. A reader may see a connection that is no more, or the addresses of the one that
//! has the same number next.

use super::counters::CONNECTION_WORDS;
use crate::vmci::Cid;

/// Number of the connection that never exists. Its words are about all others.
pub const ABOUT_ALL: usize = 0;
/// Word of [`ABOUT_ALL`] with the highest number that was ever used.
pub const HIGHEST: usize = 1;

/// Bit of a connection's first word: the connection exists.
pub const USED: u64 = 1;
/// Bit of a connection's first word: its sockets exchange records.
pub const SEQPACKET: u64 = 1 << 1;
/// Bit of a connection's first word: the end that was connected to is the fabric itself.
pub const TO_FABRIC: u64 = 1 << 5;
/// Bits of a connection's first word: an end exchanges its bytes by rings, the one that has opened
/// the connection or the other.
pub const BY_RINGS: [u64; 2] = [1 << 8, 1 << 9];
/// Words of the addresses of both ends: the context ID in the upper half, the port in the lower.
pub const ADDRESSES: [usize; 2] = [1, 2];

/// A connection that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedConnection {
    /// The end that has opened the connection, and the other one.
    pub ends: [RecordedEnd; 2],
    /// The sockets exchange records, not a stream of bytes.
    pub has_records: bool,
    /// The other end is the fabric itself.
    pub is_to_fabric: bool,
}

/// One end of a connection that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedEnd {
    /// Context ID.
    pub cid: Cid,
    /// Port.
    pub port: u32,
    /// The end exchanges its bytes by rings.
    pub is_by_rings: bool,
}

impl RecordedConnection {
    /// Reads the words of a connection; `None` if it does not exist.
    pub fn from_words(words: &[u64; CONNECTION_WORDS]) -> Option<Self> {
        let bits = words[0];
        let end = |side: usize| {
            let address = words[ADDRESSES[side]];
            RecordedEnd {
                cid: Cid((address >> 32) as u32),
                port: address as u32,
                is_by_rings: bits & BY_RINGS[side] != 0,
            }
        };
        (bits & USED != 0).then(|| Self {
            ends: [end(0), end(1)],
            has_records: bits & SEQPACKET != 0,
            is_to_fabric: bits & TO_FABRIC != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_connection_are_read() {
        let mut words = [0; CONNECTION_WORDS];
        assert_eq!(RecordedConnection::from_words(&words), None);
        words[0] = USED | BY_RINGS[1] | 1 << 40;
        words[1] = 3 << 32 | 0x1388;
        words[2] = 2 << 32 | 0xffff_ffff;
        let end = |cid, port, is_by_rings| RecordedEnd { cid: Cid(cid), port, is_by_rings };
        let expected = RecordedConnection {
            ends: [end(3, 5000, false), end(2, u32::MAX, true)],
            has_records: false,
            is_to_fabric: false,
        };
        assert_eq!(RecordedConnection::from_words(&words), Some(expected));
        words[0] = USED | SEQPACKET | TO_FABRIC;
        let read = RecordedConnection::from_words(&words).unwrap();
        assert_eq!((read.has_records, read.is_to_fabric, read.ends[1].is_by_rings), (true, true, false));
    }
}
