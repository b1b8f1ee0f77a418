//! Messages of a control connection: a request to attach an end of a stream, and its answer.
//!
//! After an answer with [`Status::Attached`], each byte to the fabric asks it to look at the
//! channel, and each byte to the program asks the program to look. The values of these bytes have
//! no meaning, with one exception: [`GIVE_UP`], sent alone, tells the fabric that the program
//! cannot believe the words of its channel. The fabric then resets the connection.
//!
//! The end of the control connection is the program's leave: from then on it neither reads nor
//! writes the rings, and the stream goes on by packets. The same end may be attached again later,
//! once nothing is left in the rings; until then the answer is [`Status::AttachedAlready`].

use thiserror::Error;

/// Port of the service that attaches streams to channels: the bytes "taut". The fabric listens on
/// it as CID 2, which is the host.
pub const SERVICE_PORT: u32 = 0x7461_7574;
/// CID of the host, where the service is.
pub const SERVICE_CID: u32 = 2;
/// Version of the messages.
pub const VERSION: u32 = 1;
/// Length of a request, in bytes.
pub const REQUEST_LEN: usize = 16;
/// Value of the byte by which a program gives up its connection. An earlier fabric takes it for any
/// other byte.
pub const GIVE_UP: u8 = 0xff;
/// Length of an answer, in bytes.
pub const ANSWER_LEN: usize = 32;

/// A request to attach the program's end of an open stream connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachRequest {
    /// Local port of the stream, in the guest.
    pub own_port: u32,
    /// CID of the stream's peer.
    pub peer_cid: u32,
    /// Port of the stream's peer.
    pub peer_port: u32,
}

/// The version of a message is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("message of version {0}; version {VERSION} is known")]
pub struct UnknownVersion(pub u32);

impl AttachRequest {
    /// Encodes the request.
    pub fn to_bytes(self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        put(&mut bytes, 0, VERSION.to_le_bytes());
        put(&mut bytes, 4, self.own_port.to_le_bytes());
        put(&mut bytes, 8, self.peer_cid.to_le_bytes());
        put(&mut bytes, 12, self.peer_port.to_le_bytes());
        bytes
    }

    /// Decodes a request. The answer to a version that is not known has
    /// [`Status::UnknownVersion`].
    pub fn from_bytes(bytes: &[u8; REQUEST_LEN]) -> Result<Self, UnknownVersion> {
        let version = u32_at(bytes, 0);
        if version != VERSION {
            return Err(UnknownVersion(version));
        }
        Ok(Self { own_port: u32_at(bytes, 4), peer_cid: u32_at(bytes, 8), peer_port: u32_at(bytes, 12) })
    }
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[repr(u32)]
pub enum Status {
    /// The end is attached to a channel.
    #[error("attached")]
    Attached = 0,
    /// The VM has no open stream connection with these addresses.
    #[error("this VM has no open stream connection with these addresses")]
    NoConnection = 1,
    /// The VM has no region for queue pairs.
    #[error("this VM has no memory for queue pairs; the key queue_pairs of its file adds some")]
    NoRegion = 2,
    /// All channels of the region are in use.
    #[error("all channels of this VM's memory for queue pairs are in use")]
    Full = 3,
    /// The end has a channel already.
    #[error("this end of the connection is attached to a channel already")]
    AttachedAlready = 4,
    /// The fabric does not know the version of the request.
    #[error("the fabric does not know the version of the request")]
    UnknownVersion = 5,
}

impl Status {
    /// All statuses, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Attached,
        Self::NoConnection,
        Self::NoRegion,
        Self::Full,
        Self::AttachedAlready,
        Self::UnknownVersion,
    ];

    /// The number that the answer has.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The status with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachAnswer {
    /// Outcome. The other fields have a meaning only if it is [`Status::Attached`].
    pub status: Status,
    /// Index of the channel.
    pub channel: u32,
    /// Number of bytes of the peer's stream that this end receives by packets, before the first
    /// byte from the ring. It counts from the begin of the stream, without bytes that came through
    /// rings, and modulo 2^32: kernels count so. The upper half is zero.
    pub by_packets: u64,
}

/// Reason why an answer is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The answer has another version.
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    /// The status has no meaning in this version.
    #[error("the answer has status {0}, which is not known")]
    Status(u32),
}

impl AttachAnswer {
    /// An answer that attaches nothing.
    pub const fn refusal(status: Status) -> Self {
        Self { status, channel: 0, by_packets: 0 }
    }

    /// Encodes the answer.
    pub fn to_bytes(self) -> [u8; ANSWER_LEN] {
        let mut bytes = [0; ANSWER_LEN];
        put(&mut bytes, 0, VERSION.to_le_bytes());
        put(&mut bytes, 4, self.status.number().to_le_bytes());
        put(&mut bytes, 8, self.channel.to_le_bytes());
        put(&mut bytes, 16, self.by_packets.to_le_bytes());
        bytes
    }

    /// Decodes an answer. Its reserved fields are ignored.
    pub fn from_bytes(bytes: &[u8; ANSWER_LEN]) -> Result<Self, AnswerError> {
        let version = u32_at(bytes, 0);
        if version != VERSION {
            return Err(UnknownVersion(version).into());
        }
        let status = u32_at(bytes, 4);
        let status = Status::from_number(status).ok_or(AnswerError::Status(status))?;
        let by_packets = u64::from(u32_at(bytes, 16)) | u64::from(u32_at(bytes, 20)) << 32;
        Ok(Self { status, channel: u32_at(bytes, 8), by_packets })
    }
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: AttachRequest =
        AttachRequest { own_port: 0x0403_0201, peer_cid: 5, peer_port: 0xffff_fffe };

    #[test]
    fn the_service_has_the_port_taut() {
        assert_eq!(SERVICE_PORT.to_be_bytes(), *b"taut");
        assert_eq!(SERVICE_PORT, 1_952_544_116);
    }

    #[test]
    fn a_request_has_its_fields_in_order() {
        let bytes = REQUEST.to_bytes();
        assert_eq!(bytes, [1, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(AttachRequest::from_bytes(&bytes), Ok(REQUEST));
    }

    #[test]
    fn a_request_of_another_version_is_refused() {
        for version in [0, 2, u32::MAX] {
            let mut bytes = REQUEST.to_bytes();
            bytes[..4].copy_from_slice(&version.to_le_bytes());
            assert_eq!(AttachRequest::from_bytes(&bytes), Err(UnknownVersion(version)));
        }
    }

    #[test]
    fn an_answer_has_its_fields_in_order() {
        let answer = AttachAnswer { status: Status::Attached, channel: 7, by_packets: 0x0807_0605_0403_0201 };
        let mut expected = [0; ANSWER_LEN];
        expected[0] = 1;
        expected[8] = 7;
        expected[16..24].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(answer.to_bytes(), expected);
        assert_eq!(AttachAnswer::from_bytes(&expected), Ok(answer));
        // Later fields of this version.
        expected[12] = 1;
        expected[31] = 1;
        assert_eq!(AttachAnswer::from_bytes(&expected), Ok(answer));
    }

    #[test]
    fn each_status_has_its_number_and_a_text() {
        for (number, status) in (0..).zip(Status::ALL) {
            assert_eq!(status.number(), number);
            assert_eq!(Status::from_number(number), Some(status));
            let answer = AttachAnswer::refusal(status);
            assert_eq!(AttachAnswer::from_bytes(&answer.to_bytes()), Ok(answer));
            let others = Status::ALL.into_iter().filter(|other| *other != status);
            assert!(others.map(|other| other.to_string()).all(|text| text != status.to_string()));
        }
        assert_eq!(Status::from_number(6), None);
        assert_eq!(Status::from_number(u32::MAX), None);
    }

    #[test]
    fn an_answer_that_is_not_known_is_refused() {
        let mut bytes = AttachAnswer::refusal(Status::Full).to_bytes();
        bytes[4] = 6;
        assert_eq!(AttachAnswer::from_bytes(&bytes), Err(AnswerError::Status(6)));
        bytes[0] = 2;
        let error = AttachAnswer::from_bytes(&bytes).unwrap_err();
        assert_eq!(error, AnswerError::Version(UnknownVersion(2)));
        assert_eq!(error.to_string(), "message of version 2; version 1 is known");
    }
}
