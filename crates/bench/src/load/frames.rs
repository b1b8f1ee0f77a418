//! The frames: Ethernet, IPv4, UDP or TCP headers, then zeros.

use taut_virtq::driver::burst::Frame;
use taut_virtq::header::{self, NetHeader};

/// Bytes of the shortest Ethernet frame without its checksum, which has room for the UDP header.
pub const HEADERS: u32 = 60;
/// Bytes of the longest IPv4 packet with its Ethernet header.
pub(super) const LONGEST: u32 = 65_535 + 14;
/// Longest frame in bytes that is sent as it is; longer ones are to be segmented.
const MTU_FRAME: u32 = 1518;
/// Most flows: all UDP source ports.
pub const MAX_FLOWS: u32 = 1 << 16;
/// Most MAC addresses behind a port.
pub const MAX_MACS: u32 = 1 << 12;

/// Bytes of the Ethernet, IPv4 and TCP headers of a frame to be segmented.
const TCP_HEADERS: u16 = 14 + 20 + 20;
/// Bytes of payload of each segment.
const SEGMENT: u16 = 1448;
/// Offset of the TCP checksum from the start of the TCP header.
const TCP_CHECKSUM: u16 = 16;

/// Returns MAC address number `number` behind a port.
pub(super) fn mac(port: usize, number: u32) -> [u8; 6] {
    let [_, _, high, low] = number.to_be_bytes();
    [2, 0x11, 0, high, low, port as u8]
}

/// The frames that one port sends.
#[derive(Debug, Clone)]
pub(super) struct Frames {
    port: usize,
    bytes: Vec<u8>,
    flows: u32,
    macs: u32,
}

impl Frames {
    pub(super) fn new(port: usize, size: u32, flows: u32, macs: u32) -> Self {
        Self { port, bytes: bytes(port, size), flows, macs }
    }

    /// Returns the virtio-net header and the frame, as every buffer is initialized.
    pub(super) fn with_header(&self) -> Vec<u8> {
        let mut header = NetHeader::default();
        if self.are_segmented() {
            header.flags = header::NEEDS_CSUM;
            header.csum_start = 14 + 20;
            header.csum_offset = TCP_CHECKSUM;
            header.gso_type = header::GSO_TCPV4;
            header.hdr_len = TCP_HEADERS;
            header.gso_size = SEGMENT;
        }
        let mut all = header.to_bytes().to_vec();
        all.extend_from_slice(&self.bytes);
        all
    }

    /// Returns whether the frames are to be segmented by the receiving side.
    pub(super) fn are_segmented(&self) -> bool {
        self.bytes.len() > MTU_FRAME as usize
    }

    /// Returns what is to be written into each frame before it is sent; none if all frames are
    /// alike and `always` is false.
    pub(super) fn touch(&self, always: bool) -> Option<Touch> {
        (always || self.flows > 1 || self.macs > 1).then(|| self.make_touch(0, self.macs, self.flows))
    }

    /// Returns a touch for frames between the MACs with this number of both ports.
    pub(super) fn only(&self, mac: u32) -> Touch {
        self.make_touch(mac, 1, 1)
    }

    fn make_touch(&self, first: u32, count: u32, flows: u32) -> Touch {
        let words =
            (first..first + count).map(|number| words(mac(1 - self.port, number), mac(self.port, number)));
        let line = u64::from_le_bytes(self.bytes[32..40].try_into().expect("eight bytes"));
        Touch { addresses: words.collect(), line, flows, next_address: 0, next_flow: 0 }
    }

    /// Returns whether `frame` is an unchanged frame of this port from the MAC with this number.
    pub(super) fn is_this(&self, frame: &Frame<'_>, number: u32) -> bool {
        let mut expected = self.bytes.clone();
        expected[..6].copy_from_slice(&mac(1 - self.port, number));
        expected[6..12].copy_from_slice(&mac(self.port, number));
        expected
            .chunks(8)
            .enumerate()
            .all(|(index, chunk)| frame.load(index * 8).to_le_bytes()[..chunk.len()] == *chunk)
    }
}

/// Returns the first 16 bytes of an IPv4 frame.
fn words(to: [u8; 6], from: [u8; 6]) -> [u64; 2] {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    bytes[12..].copy_from_slice(&[8, 0, 0x45, 0]);
    [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

fn bytes(port: usize, size: u32) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    let segmented = size > MTU_FRAME;
    for (at, word) in words(mac(1 - port, 0), mac(port, 0)).iter().enumerate() {
        bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    let ip_len = (size - 14) as u16;
    bytes[16..18].copy_from_slice(&ip_len.to_be_bytes());
    bytes[22] = 64;
    bytes[23] = if segmented { 6 } else { 17 };
    bytes[26..30].copy_from_slice(&[198, 18, 0, 1 + port as u8]);
    bytes[30..34].copy_from_slice(&[198, 18, 0, 2 - port as u8]);
    let sum =
        !fold(bytes[14..34].chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum());
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes[34..38].copy_from_slice(&[0, 9, 0, 9]);
    if segmented {
        bytes[46] = 5 << 4;
        bytes[47] = 0x10;
        bytes[48..50].copy_from_slice(&u16::MAX.to_be_bytes());
    } else {
        bytes[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    }
    bytes
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Writes addresses and source port into frames in turn, all within the first 40 bytes.
#[derive(Debug, Clone)]
pub(super) struct Touch {
    /// First 16 bytes of the frame, for each MAC.
    addresses: Vec<[u64; 2]>,
    /// Bytes 32 to 40 of the frame, with the UDP source port at offset 34.
    line: u64,
    flows: u32,
    next_address: usize,
    next_flow: u32,
}

impl Touch {
    #[inline]
    pub(super) fn apply(&mut self, frame: Frame<'_>) {
        let [low, high] = self.addresses[self.next_address];
        frame.store(0, low);
        frame.store(8, high);
        let port = (self.next_flow as u16).wrapping_add(9).swap_bytes();
        frame.store(32, self.line & !0xffff_0000 | u64::from(port) << 16);
        self.next_address += 1;
        if self.next_address == self.addresses.len() {
            self.next_address = 0;
        }
        self.next_flow += 1;
        if self.next_flow == self.flows {
            self.next_flow = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_valid_ip() {
        for size in [60, 64, 256, 1518, LONGEST] {
            let bytes = bytes(0, size);
            assert_eq!(bytes.len(), size as usize);
            let words =
                bytes[14..34].chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
            assert_eq!(fold(words.sum()), 0xffff, "the header's checksum is right");
            assert_eq!(usize::from(u16::from_be_bytes([bytes[16], bytes[17]])), bytes.len() - 14);
            assert_eq!(bytes[..6], mac(1, 0));
            assert_eq!(bytes[6..12], mac(0, 0));
        }
    }

    #[test]
    fn only_long_frames_are_to_be_segmented() {
        let header = |size| Frames::new(0, size, 1, 1).with_header()[..header::LEN].to_vec();
        assert!(header(1518).iter().all(|byte| *byte == 0));
        assert_eq!(header(1519)[..2], [header::NEEDS_CSUM, header::GSO_TCPV4]);
    }
}
