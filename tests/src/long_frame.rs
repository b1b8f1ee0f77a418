//! A TCP frame that is longer than a packet, as a guest leaves it to others to be cut.

use taut_virtq::header::{GSO_TCPV4, NEEDS_CSUM, NetHeader};

/// Bytes of the headers of [`long_tcp`], and of each of its segments: Ethernet, IPv4 and TCP
/// without options.
pub const TCP_HEADERS: usize = 54;

/// Returns a TCP frame over IPv4 with up to 65,495 bytes of payload, and the header that asks for
/// segments with `mss` bytes each and for their checksums.
pub fn long_tcp(to: [u8; 6], from: [u8; 6], payload: u16, mss: u16) -> (NetHeader, Vec<u8>) {
    let mut frame = [&to[..], &from, &[8, 0, 0x45, 0]].concat();
    frame.extend((payload + 40).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(TCP_HEADERS + usize::from(payload), 0x33);
    let header = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        gso_size: mss,
        hdr_len: TCP_HEADERS as u16,
        csum_start: 34,
        csum_offset: 16,
        ..NetHeader::default()
    };
    (header, frame)
}
