//! The protocol between clients and servers of load generators on stream sockets, the same on every
//! stack.
//!
//! The connecting side (the *client*) opens with a 16-byte [`Opening`], all integers big-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0–3 | `taut` |
//! | 4 | version, 1 |
//! | 5 | mode: 1 request/response, 2 stream |
//! | 6–7 | zero |
//! | 8–11 | request/response: request size; stream: bytes that the server reads at a time |
//! | 12–15 | request/response: response size; stream: 1 if its bytes are checked, else zero |
//!
//! * **Request/response:** the client sends a request, the server answers with a response, and so
//!   on until the client closes. Over TCP, both sides switch Nagle's algorithm off.
//! * **Stream:** the client sends bytes and shuts down its direction. The server reads to the end,
//!   answers with the number of bytes that it read behind the opening (64 bits), and closes. The
//!   answer ends the measurement, so only bytes that arrived count. A checked stream consists of a
//!   known [`pattern`], and the answer is the number of bytes before the first wrong one.
//!
//! Other payload bytes have no meaning. A server closes at once if an opening is not valid.

pub mod pattern;

/// Length of an encoded [`Opening`].
pub const OPENING_LENGTH: usize = 16;
/// Largest request, response or read that a server accepts, in bytes.
pub const MAX_SIZE: u32 = 1 << 20;

const MAGIC: [u8; 4] = *b"taut";
const VERSION: u8 = 1;

/// The first bytes of a connection, which announce what the client is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Requests and responses in turn.
    RequestResponse {
        /// Bytes per request, 1 to [`MAX_SIZE`].
        request: u32,
        /// Bytes per response, 1 to [`MAX_SIZE`].
        response: u32,
    },
    /// Bytes in one direction, then their number back.
    Stream {
        /// Bytes that the server reads at a time, 1 to [`MAX_SIZE`].
        receive: u32,
        /// The stream consists of a known [`pattern`], which the server compares.
        check: bool,
    },
}

impl Opening {
    /// Returns the opening's bytes on the wire.
    pub fn encode(self) -> [u8; OPENING_LENGTH] {
        let (mode, first, second) = match self {
            Self::RequestResponse { request, response } => (1, request, response),
            Self::Stream { receive, check } => (2, receive, check.into()),
        };
        let mut bytes = [0; OPENING_LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = mode;
        bytes[8..12].copy_from_slice(&first.to_be_bytes());
        bytes[12..].copy_from_slice(&second.to_be_bytes());
        bytes
    }

    /// Reads an opening; none if it is not valid.
    pub fn decode(bytes: [u8; OPENING_LENGTH]) -> Option<Self> {
        let [m0, m1, m2, m3, version, mode, z0, z1, f0, f1, f2, f3, s0, s1, s2, s3] = bytes;
        if [m0, m1, m2, m3] != MAGIC || version != VERSION || [z0, z1] != [0; 2] {
            return None;
        }
        let first = u32::from_be_bytes([f0, f1, f2, f3]);
        let second = u32::from_be_bytes([s0, s1, s2, s3]);
        let usable = |size: u32| (1..=MAX_SIZE).contains(&size);
        match mode {
            1 if usable(first) && usable(second) => {
                Some(Self::RequestResponse { request: first, response: second })
            }
            2 if usable(first) && second <= 1 => Some(Self::Stream { receive: first, check: second == 1 }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_round_trip() {
        for opening in [
            Opening::RequestResponse { request: 256, response: 1 },
            Opening::Stream { receive: 8192, check: true },
            Opening::Stream { receive: MAX_SIZE, check: false },
        ] {
            assert_eq!(Opening::decode(opening.encode()), Some(opening));
        }
    }

    #[test]
    fn each_field_is_checked() {
        for index in 0..OPENING_LENGTH {
            let mut bytes = Opening::Stream { receive: MAX_SIZE, check: false }.encode();
            bytes[index] ^= 0x80;
            assert_eq!(Opening::decode(bytes), None, "byte {index}");
        }
        let mut none = Opening::Stream { receive: 1, check: false }.encode();
        none[11] = 0;
        assert_eq!(Opening::decode(none), None);
    }
}
