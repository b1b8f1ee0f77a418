//! Classification of frames: a segment that may be merged, another frame of a TCP flow, or any
//! other.

use std::ops::Range;

use taut_virtq::header::{self, NetHeader};

use crate::net::checksum;
use crate::net::ethernet::HEADER as ETHERNET;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;

const ACK: u8 = 0x10;
pub(super) const PSH: u8 = 0x08;

/// Offsets within a TCP header.
const DATA_OFFSET: usize = 12;
pub(super) const FLAGS: usize = 13;
pub(super) const CHECKSUM: usize = 16;

/// A TCP connection in one direction. Zeros follow the addresses of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    v4: bool,
    addresses: [u8; 32],
    ports: [u8; 4],
}

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A segment with data and nothing else, which can be merged.
    Data(TcpSegment),
    /// Another frame of a TCP flow.
    Other(Flow),
    /// A frame that is not recognised as TCP and may belong to any flow.
    Unknown,
}

/// A segment that carries data and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TcpSegment {
    /// The flow.
    pub(super) flow: Flow,
    /// The segment is IPv4; otherwise it is IPv6.
    pub(super) v4: bool,
    /// Offset of the TCP header.
    pub(super) l4: usize,
    /// Offset of the payload.
    pub(super) payload: usize,
    /// Sequence number.
    pub(super) sequence: u32,
    /// `PSH` is set: no more data follows for the moment.
    pub(super) push: bool,
}

impl Kind {
    /// Classifies a frame, without verifying checksums ([`TcpSegment::is_intact`] does).
    pub(super) fn of(header: &NetHeader, frame: &[u8]) -> Self {
        let Some((flow, v4, l4)) = flow(frame) else { return Self::Unknown };
        match segment(header, frame, flow, v4, l4) {
            Some(segment) => Self::Data(segment),
            None => Self::Other(flow),
        }
    }
}

/// The flow of an unfragmented TCP frame without IP options or extension headers. Also returns
/// whether it is IPv4, and the offset of its TCP header.
fn flow(frame: &[u8]) -> Option<(Flow, bool, usize)> {
    let v4 = frame.get(12..14)? == IPV4;
    let mut addresses = [0; 32];
    let l4 = if v4 {
        let ip: &[u8; 20] = frame.get(ETHERNET..)?.first_chunk()?;
        // The flow of a fragment is unknown. `DF` alone does not make a fragment.
        let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0xbfff != 0;
        if ip[0] != 0x45 || ip[9] != TCP || fragment {
            return None;
        }
        addresses[..8].copy_from_slice(&ip[12..]);
        ETHERNET + 20
    } else {
        let ip: &[u8; 40] = frame.get(ETHERNET..)?.first_chunk()?;
        if frame[12..14] != IPV6 || ip[0] >> 4 != 6 || ip[6] != TCP {
            return None;
        }
        addresses.copy_from_slice(&ip[8..]);
        ETHERNET + 40
    };
    let ports = *frame.get(l4..)?.first_chunk()?;
    Some((Flow { v4, addresses, ports }, v4, l4))
}

/// The segment in a TCP frame; `None` if it must not be merged.
fn segment(header: &NetHeader, frame: &[u8], flow: Flow, v4: bool, l4: usize) -> Option<TcpSegment> {
    let tcp: &[u8; 20] = frame.get(l4..)?.first_chunk()?;
    let payload = l4 + 4 * usize::from(tcp[DATA_OFFSET] >> 4);
    let ip_len = if v4 {
        usize::from(u16::from_be_bytes([frame[ETHERNET + 2], frame[ETHERNET + 3]]))
    } else {
        40 + usize::from(u16::from_be_bytes([frame[ETHERNET + 4], frame[ETHERNET + 5]]))
    };
    let plain = tcp[FLAGS] & !PSH == ACK && tcp[DATA_OFFSET].is_multiple_of(16) && tcp[18..20] == [0, 0];
    let exact = payload >= l4 + 20 && payload < frame.len() && ETHERNET + ip_len == frame.len();
    let partial = header.flags & header::NEEDS_CSUM != 0;
    let right_sum = !partial || (usize::from(header.csum_start), header.csum_offset) == (l4, CHECKSUM as u16);
    (plain && exact && right_sum && header.gso_type == header::GSO_NONE).then(|| TcpSegment {
        flow,
        v4,
        l4,
        payload,
        sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        push: tcp[FLAGS] & PSH != 0,
    })
}

impl TcpSegment {
    /// Verifies the frame's checksums. A checksum that its sender left to be completed counts as
    /// correct.
    pub(super) fn is_intact(&self, header: &NetHeader, frame: &[u8]) -> bool {
        if self.v4 && checksum::fold(checksum::add(0, &frame[ETHERNET..self.l4])) != 0 {
            return false;
        }
        header.flags & header::NEEDS_CSUM != 0
            || checksum::fold(checksum::add(self.pseudo_sum(frame, frame.len()), &frame[self.l4..])) == 0
    }

    /// The sum of the pseudo header of a frame with these addresses and `len` bytes.
    pub(super) fn pseudo_sum(&self, frame: &[u8], len: usize) -> u64 {
        let addresses = if self.v4 { ETHERNET + 12..ETHERNET + 20 } else { ETHERNET + 8..ETHERNET + 40 };
        checksum::add(u64::from(TCP) + (len - self.l4) as u64, &frame[addresses])
    }

    /// The identification of IPv4; 0 for IPv6.
    pub(super) fn id(&self, frame: &[u8]) -> u16 {
        if self.v4 { u16::from_be_bytes([frame[ETHERNET + 4], frame[ETHERNET + 5]]) } else { 0 }
    }

    /// Tells whether identifications may repeat: they have no meaning in packets that cannot be
    /// fragmented (RFC 6864).
    pub(super) fn is_atomic(&self, frame: &[u8]) -> bool {
        self.v4 && frame[ETHERNET + 6] & 0x40 != 0
    }

    /// Tells whether the headers of two segments differ only in lengths, identification, sequence
    /// number, `PSH` and checksums. Options, timestamps included, must be equal: a merged frame has
    /// one set of them.
    pub(super) fn same_headers(&self, one: &[u8], other: &[u8]) -> bool {
        let l4 = self.l4;
        let same = |range: Range<usize>| one[range.clone()] == other[range];
        let ip = if self.v4 {
            // Version and service class; flags, TTL and protocol; addresses.
            same(0..ETHERNET + 2) && same(ETHERNET + 6..ETHERNET + 10) && same(ETHERNET + 12..l4)
        } else {
            same(0..ETHERNET + 4) && same(ETHERNET + 6..l4)
        };
        let flags = l4 + FLAGS;
        // Ports; acknowledgement and data offset; flags; window; urgent pointer and options.
        ip && same(l4..l4 + 4)
            && same(l4 + 8..flags)
            && one[flags] & !PSH == other[flags] & !PSH
            && same(l4 + 14..l4 + CHECKSUM)
            && same(l4 + 18..self.payload)
    }
}
