//! Frames for tests.

use taut_api::MacAddr;
use taut_virtq::NetHeader;

/// A plain frame of the type for local experiments, whose body is filled with `mark`.
pub(crate) fn frame(dst: MacAddr, src: MacAddr, mark: u8, len: usize) -> Vec<u8> {
    let mut frame = [&dst.0[..], &src.0[..], &[0x88, 0xb5]].concat();
    frame.extend((frame.len()..len).map(|at| mark.wrapping_add(at as u8)));
    frame
}

/// A UDP frame over IPv4 with a number in its payload (`[42..46]`).
pub(crate) fn udp(dst: MacAddr, src: MacAddr, src_port: u16, number: u32) -> Vec<u8> {
    let mut frame = [&dst.0[..], &src.0[..], &[0x08, 0x00]].concat();
    frame.extend([0x45, 0, 0, 46, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(src_port.to_be_bytes());
    frame.extend([0, 9, 0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// A TCP frame over IPv4 as a guest leaves it to the hardware: longer than the MTU, with the
/// checksum of the pseudo header only.
pub(crate) fn tso(dst: MacAddr, src: MacAddr, payload: usize, mss: u16) -> (NetHeader, Vec<u8>) {
    let mut frame = [&dst.0[..], &src.0[..], &[0x08, 0x00]].concat();
    let ip_len = (40 + payload) as u16;
    frame.extend([0x45, 0]);
    frame.extend(ip_len.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let tcp_len = (20 + payload) as u16;
    let pseudo = [0x0a00, 1, 0x0a00, 2, 6, tcp_len].iter().map(|&w| u32::from(w)).sum::<u32>();
    let pseudo = ((pseudo >> 16) + (pseudo & 0xffff)) as u16;
    frame.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff]);
    frame.extend(pseudo.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..payload).map(|at| (at % 251) as u8));
    let header = NetHeader {
        flags: taut_virtq::header::NEEDS_CSUM,
        gso_type: taut_virtq::header::GSO_TCPV4,
        hdr_len: 54,
        gso_size: mss,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    };
    (header, frame)
}

/// The TCP payload of a frame from [`tso`].
pub(crate) fn tcp_payload(frame: &[u8]) -> &[u8] {
    &frame[54..]
}

/// Tells whether the TCP checksum of a frame from [`tso`] is complete and correct.
pub(crate) fn tcp_checksum_holds(frame: &[u8]) -> bool {
    let mut sum = 6 + (frame.len() - 34) as u32;
    for pair in frame[26..].chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum == 0xffff
}
