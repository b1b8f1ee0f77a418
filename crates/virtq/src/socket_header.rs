//! The header in front of every packet of a socket device (5.10.6).

/// Length in bytes.
pub const LEN: usize = 44;

/// Most payload bytes of a packet from a guest. Linux sends no more.
pub const MAX_PAYLOAD: u32 = 64 << 10;

/// `kind`: bytes in order.
pub const STREAM: u16 = 1;
/// `kind`: bytes in order, with the ends of messages and records.
pub const SEQPACKET: u16 = 2;

/// `op`: not a packet.
pub const INVALID: u16 = 0;
/// `op`: requests a connection.
pub const REQUEST: u16 = 1;
/// `op`: accepts a connection.
pub const RESPONSE: u16 = 2;
/// `op`: the connection does not exist, or no longer.
pub const RST: u16 = 3;
/// `op`: ends one or both directions, as the `SHUTDOWN_` flags say.
pub const SHUTDOWN: u16 = 4;
/// `op`: payload.
pub const RW: u16 = 5;
/// `op`: reports the room for payload.
pub const CREDIT_UPDATE: u16 = 6;
/// `op`: asks for a [`CREDIT_UPDATE`].
pub const CREDIT_REQUEST: u16 = 7;

/// `flags` of [`SHUTDOWN`]: the sender of the packet receives no more.
pub const SHUTDOWN_RCV: u32 = 1;
/// `flags` of [`SHUTDOWN`]: the sender of the packet sends no more.
pub const SHUTDOWN_SEND: u32 = 2;

/// `flags` of [`RW`], [`SEQPACKET`] only: a message ends with this packet.
pub const SEQ_EOM: u32 = 1;
/// `flags` of [`RW`], [`SEQPACKET`] only: a record ends with this packet.
pub const SEQ_EOR: u32 = 2;

/// The header of a packet as it was read. Nothing in it is checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketHeader {
    /// CID of the sender.
    pub src_cid: u64,
    /// CID of the receiver.
    pub dst_cid: u64,
    /// Port of the sender.
    pub src_port: u32,
    /// Port of the receiver.
    pub dst_port: u32,
    /// Payload bytes behind the header.
    pub len: u32,
    /// [`STREAM`] or [`SEQPACKET`]. The specification calls this field `type`.
    pub kind: u16,
    /// One of [`REQUEST`] to [`CREDIT_REQUEST`].
    pub op: u16,
    /// Flags whose meaning depends on `op`.
    pub flags: u32,
    /// Size of the sender's receive buffer for this connection in bytes.
    pub buf_alloc: u32,
    /// Number of payload bytes that the sender's program has read from this connection, modulo
    /// 2^32.
    pub fwd_cnt: u32,
}

impl SocketHeader {
    /// Reads the little-endian form.
    #[inline]
    pub fn from_bytes(b: &[u8; LEN]) -> Self {
        let half = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let double = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Self {
            src_cid: double(0),
            dst_cid: double(8),
            src_port: word(16),
            dst_port: word(20),
            len: word(24),
            kind: half(28),
            op: half(30),
            flags: word(32),
            buf_alloc: word(36),
            fwd_cnt: word(40),
        }
    }

    /// The little-endian form.
    #[inline]
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut b = [0; LEN];
        b[0..8].copy_from_slice(&self.src_cid.to_le_bytes());
        b[8..16].copy_from_slice(&self.dst_cid.to_le_bytes());
        b[16..20].copy_from_slice(&self.src_port.to_le_bytes());
        b[20..24].copy_from_slice(&self.dst_port.to_le_bytes());
        b[24..28].copy_from_slice(&self.len.to_le_bytes());
        b[28..30].copy_from_slice(&self.kind.to_le_bytes());
        b[30..32].copy_from_slice(&self.op.to_le_bytes());
        b[32..36].copy_from_slice(&self.flags.to_le_bytes());
        b[36..40].copy_from_slice(&self.buf_alloc.to_le_bytes());
        b[40..44].copy_from_slice(&self.fwd_cnt.to_le_bytes());
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_little_endian_and_in_order() {
        let bytes: [u8; LEN] = std::array::from_fn(|at| at as u8 + 1);
        let header = SocketHeader::from_bytes(&bytes);
        assert_eq!(header.src_cid, 0x0807_0605_0403_0201);
        assert_eq!(header.dst_cid, 0x100f_0e0d_0c0b_0a09);
        assert_eq!((header.src_port, header.dst_port), (0x1413_1211, 0x1817_1615));
        assert_eq!((header.len, header.kind, header.op), (0x1c1b_1a19, 0x1e1d, 0x201f));
        assert_eq!((header.flags, header.buf_alloc, header.fwd_cnt), (0x2423_2221, 0x2827_2625, 0x2c2b_2a29));
        assert_eq!(header.to_bytes(), bytes);
    }
}
