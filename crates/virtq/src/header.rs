//! The virtio-net header in front of every frame (5.1.6), in the version 1 layout of 12 bytes.

/// Length in bytes.
pub const LEN: usize = 12;

/// `flags`: the checksum from `csum_start` on must still be completed.
pub const NEEDS_CSUM: u8 = 1;
/// `flags`: the checksum was verified by the device.
pub const DATA_VALID: u8 = 2;

/// `gso_type`: an ordinary frame.
pub const GSO_NONE: u8 = 0;
/// `gso_type`: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: UDP fragmentation offload (historic).
pub const GSO_UDP: u8 = 3;
/// `gso_type`: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// `gso_type`: UDP segmentation.
pub const GSO_UDP_L4: u8 = 5;
/// `gso_type`: the ECN congestion bit is set. Added to one of the TCP types.
pub const GSO_ECN: u8 = 0x80;

/// A virtio-net header as it was read. Nothing in it is checked against the frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// Any of [`NEEDS_CSUM`] and [`DATA_VALID`].
    pub flags: u8,
    /// One of the `GSO_` types, possibly with [`GSO_ECN`].
    pub gso_type: u8,
    /// Length of the frame's headers in bytes. A hint only.
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Offset in the frame at which the checksum starts.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
    /// Receive only: number of buffers that the frame is spread over. [`crate::RxQueue`] sets it.
    pub num_buffers: u16,
}

impl NetHeader {
    /// Reads the little-endian form.
    #[inline]
    pub fn from_bytes(b: &[u8; LEN]) -> Self {
        let word = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        Self {
            flags: b[0],
            gso_type: b[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
            num_buffers: word(10),
        }
    }

    /// The little-endian form.
    #[inline]
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut b = [0; LEN];
        b[0] = self.flags;
        b[1] = self.gso_type;
        for (at, word) in [
            (2, self.hdr_len),
            (4, self.gso_size),
            (6, self.csum_start),
            (8, self.csum_offset),
            (10, self.num_buffers),
        ] {
            b[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_little_endian_and_in_order() {
        let bytes = [1, 0x81, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        let header = NetHeader::from_bytes(&bytes);
        assert_eq!(header.gso_type, GSO_TCPV4 | GSO_ECN);
        assert_eq!(header.hdr_len, 0x0403);
        assert_eq!(header.num_buffers, 0x0c0b);
        assert_eq!(header.to_bytes(), bytes);
    }
}
