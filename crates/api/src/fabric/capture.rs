//! Captures: what the fabric sends over the socket of a capture.
//!
//! `tautd` makes a pair of connected `SOCK_SEQPACKET` Unix sockets and gives one of them to the
//! fabric ([`super::ToFabric::Capture`]). Each message is one packet. It begins with [`HEADER`]
//! bytes, whose numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 7 | time of the frame in nanoseconds since the Unix epoch |
//! | 8 to 15 | number of frames that the capture has lost so far |
//! | 16 to 19 | length of the frame |
//! | 20 | kind of the message |
//! | 21 | reason for the drop of the frame, or for the end of the capture |
//! | 22, 23 | zero |
//!
//! The first bytes of a frame follow its header. The capture ends when either end is closed.

pub use crate::direction::{Direction, Directions};

use super::drop_reason::DropReason;

/// Length in bytes of a message's header.
pub const HEADER: usize = 24;
/// Longest part of a frame that can be captured, in bytes: the longest frame that a guest can send.
pub const MAX_SNAPLEN: u32 = 65_600;
/// Maximum number of captures of a fabric at one time.
pub const MOST_CAPTURES: usize = 16;

/// A message of the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// The first message of a capture that is in force: each later frame is recorded or counted as
    /// lost.
    Begun,
    /// A frame.
    Frame(Record<'a>),
    /// Number of frames that the capture has lost so far. Sent at most once a second, if no frame
    /// has told the number.
    Lost(u64),
    /// The capture was not begun, or has ended.
    Ended(Ended),
}

/// A captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time at which the switch was done with the frame, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// Number of frames that the capture has lost before this one.
    pub lost: u64,
    /// Direction of the frame.
    pub direction: Direction,
    /// Reason, if the frame was dropped and the drop is counted at this port.
    pub dropped: Option<DropReason>,
    /// Length of the whole frame in bytes.
    pub len: u32,
    /// First bytes of the frame.
    pub bytes: &'a [u8],
}

/// Reason that the fabric ends a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The fabric does not have the port, or no longer.
    NoPort,
    /// [`MOST_CAPTURES`] run already.
    TooMany,
    /// The kernel refused what the capture needs.
    Failed,
}

/// Reason that a packet is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// The packet has no whole header.
    #[error("a message of {0} bytes is shorter than its header")]
    Short(usize),
    /// The message is of a kind that this version does not know.
    #[error("unknown kind of message: {0}")]
    Kind(u8),
    /// The reason is one that this version does not know.
    #[error("unknown reason: {0}")]
    Reason(u8),
    /// More bytes came than the frame has.
    #[error("{got} bytes came of a frame of {len} bytes")]
    Long {
        /// Number of bytes that came.
        got: usize,
        /// Length of the frame in its header.
        len: u32,
    },
}

const BEGUN: u8 = 0;
const TX: u8 = 1;
const RX: u8 = 2;
const LOST: u8 = 3;
const ENDED: u8 = 4;

impl<'a> Message<'a> {
    /// Returns the header. The bytes of a frame follow it in the same packet.
    pub fn header(&self) -> [u8; HEADER] {
        let (mut at_ns, mut lost, mut len, mut reason) = (0, 0, 0, 0);
        let kind = match self {
            Self::Begun => BEGUN,
            Self::Frame(record) => {
                (at_ns, lost, len) = (record.at_ns, record.lost, record.len);
                reason = record.dropped.map_or(0, |reason| reason as u8 + 1);
                match record.direction {
                    Direction::Tx => TX,
                    Direction::Rx => RX,
                }
            }
            Self::Lost(count) => {
                lost = *count;
                LOST
            }
            Self::Ended(why) => {
                reason = match why {
                    Ended::NoPort => 0,
                    Ended::TooMany => 1,
                    Ended::Failed => 2,
                };
                ENDED
            }
        };
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&u64::to_le_bytes(at_ns));
        header[8..16].copy_from_slice(&u64::to_le_bytes(lost));
        header[16..20].copy_from_slice(&u32::to_le_bytes(len));
        header[20] = kind;
        header[21] = reason;
        header
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// The packet is no message of this version.
    pub fn parse(packet: &'a [u8]) -> Result<Self, BadMessage> {
        let Some((header, bytes)) = packet.split_first_chunk::<HEADER>() else {
            return Err(BadMessage::Short(packet.len()));
        };
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (at_ns, lost, reason) = (word(0), word(8), header[21]);
        let len = u32::from_le_bytes([header[16], header[17], header[18], header[19]]);
        let direction = match header[20] {
            BEGUN => return Ok(Self::Begun),
            LOST => return Ok(Self::Lost(lost)),
            ENDED => return ended(reason).map(Self::Ended),
            TX => Direction::Tx,
            RX => Direction::Rx,
            kind => return Err(BadMessage::Kind(kind)),
        };
        if bytes.len() > len as usize {
            return Err(BadMessage::Long { got: bytes.len(), len });
        }
        Ok(Self::Frame(Record { at_ns, lost, direction, dropped: dropped(reason)?, len, bytes }))
    }
}

fn ended(reason: u8) -> Result<Ended, BadMessage> {
    match reason {
        0 => Ok(Ended::NoPort),
        1 => Ok(Ended::TooMany),
        2 => Ok(Ended::Failed),
        other => Err(BadMessage::Reason(other)),
    }
}

/// Returns the reason with this number, which is one more than that of its counter; 0 stands for
/// none.
fn dropped(number: u8) -> Result<Option<DropReason>, BadMessage> {
    let Some(counter) = number.checked_sub(1) else { return Ok(None) };
    let found = DropReason::ALL.iter().copied().find(|reason| *reason as u8 == counter);
    found.map(Some).ok_or(BadMessage::Reason(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(message: &Message<'_>) -> Vec<u8> {
        let bytes = if let Message::Frame(record) = message { record.bytes } else { &[] };
        [&message.header()[..], bytes].concat()
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let record = Record {
            at_ns: 1_700_000_000_123_456_789,
            lost: 7,
            direction: Direction::Rx,
            dropped: None,
            len: 1514,
            bytes: &[1, 2, 3],
        };
        let mut messages = vec![
            Message::Begun,
            Message::Lost(u64::MAX),
            Message::Ended(Ended::NoPort),
            Message::Ended(Ended::TooMany),
            Message::Ended(Ended::Failed),
            Message::Frame(record),
            Message::Frame(Record { direction: Direction::Tx, len: 3, ..record }),
        ];
        let reasons = DropReason::ALL.iter().map(|&reason| Record { dropped: Some(reason), ..record });
        messages.extend(reasons.map(Message::Frame));
        for message in messages {
            assert_eq!(Message::parse(&packet(&message)), Ok(message));
        }
    }

    #[test]
    fn packets_that_are_no_messages_are_refused() {
        let record =
            Record { at_ns: 0, lost: 0, direction: Direction::Tx, dropped: None, len: 2, bytes: &[1, 2, 3] };
        let long = packet(&Message::Frame(record));
        assert_eq!(Message::parse(&long), Err(BadMessage::Long { got: 3, len: 2 }));
        for len in 0..HEADER {
            assert_eq!(Message::parse(&long[..len]), Err(BadMessage::Short(len)));
        }
        let mut whole = packet(&Message::Frame(Record { len: 3, ..record }));
        // Number 11 is free, and no reason comes after the last one.
        for reason in [12, 33, 255] {
            whole[21] = reason;
            assert_eq!(Message::parse(&whole), Err(BadMessage::Reason(reason)));
        }
        whole[20] = ENDED;
        assert_eq!(Message::parse(&whole), Err(BadMessage::Reason(255)));
        whole[20] = 5;
        assert_eq!(Message::parse(&whole), Err(BadMessage::Kind(5)));
    }
}
