//! Bytes on the wire: frames that cross the edge between ports and uplinks are counted as they are
//! outside, so that the use of an uplink can be compared with its speed.

use taut_api::fabric::counters::PortWord;
use taut_uplink::netioc::wire_bytes;
use taut_virtq::header::{GSO_NONE, NetHeader};

use super::{Admitted, Forwarder};
use crate::net::ethernet::{Ethernet, HEADER, TAG, TAG_8021Q};
use crate::port::{Body, Frame};
use crate::switch::target::Target;

impl Forwarder<'_> {
    /// Counts a frame that was delivered to a member, if the frame has come from outside or goes
    /// there.
    #[inline]
    pub(super) fn count_crossing(&mut self, target: Target, passing: &Admitted<'_>) {
        if self.segment.has_uplinks() {
            self.count_at_edge(target, passing);
        }
    }

    fn count_at_edge(&mut self, target: Target, passing: &Admitted<'_>) {
        let segment = self.segment;
        let (from, to) = (segment.member(self.sender), segment.member(target.member));
        let Frame { header, len, .. } = &passing.frame;
        let bytes = on_wire(passing.frame.first_bytes(), *len, header);
        match (from.uplink, to.uplink) {
            (None, Some(_)) => {
                self.count_outward(target, bytes);
                if to.port.has_network_io() {
                    self.use_turn(target, bytes);
                }
            }
            (Some(_), None) => to.port.counters.add_shared(PortWord::WireRxBytes, bytes),
            _ => {}
        }
    }

    /// Counts bytes on the wire that an uplink has taken, at both ports.
    pub(super) fn count_outward(&self, uplink: Target, bytes: u64) {
        for member in [self.sender, uplink.member] {
            self.segment.member(member).port.counters.add_shared(PortWord::WireTxBytes, bytes);
        }
    }
}

/// Most segments of a frame that are counted: those of the longest frame with the shortest segments
/// that are forwarded.
const MOST_SEGMENTS: usize = 1365;
/// Length of the headers of TCP over IPv4, with time stamps: where they cannot be read.
const USUAL_HEADERS: usize = HEADER + 20 + 32;
/// Length of the longest headers: with a tag, IPv4 with options, and TCP with options.
const LONGEST_HEADERS: usize = HEADER + TAG + 60 + 60;

/// Returns the bytes of the packet in a frame that begins with `head`, without the Ethernet header
/// and a tag. For a frame that has yet to be segmented, those of its longest segment. A whole frame
/// without a tag may use the room of one, as on Linux's bridge: its last four bytes do not count.
#[inline]
pub(super) fn packet_len(
    head: &[u8],
    len: usize,
    header: &NetHeader,
    ethernet: &Ethernet,
    body: &Body<'_>,
) -> usize {
    if header.gso_type == GSO_NONE {
        return len.saturating_sub(HEADER + TAG);
    }
    let tag = if ethernet.tag.is_some() { TAG } else { 0 };
    let headers = headers_len(head).or_else(|| long_headers_len(body)).unwrap_or(USUAL_HEADERS + tag);
    (headers + usize::from(header.gso_size)).min(len).saturating_sub(HEADER + tag)
}

/// Returns the length of headers that are longer than a guest's first bytes, as those of TCP over
/// IPv6 are. A guest that changes them meanwhile gains 60 bytes at most, those of TCP's header.
#[inline(never)]
fn long_headers_len(body: &Body<'_>) -> Option<usize> {
    let Body::Guest(frame) = body else { return None };
    let mut head = [0; LONGEST_HEADERS];
    let len = frame.copy_to(&mut head);
    headers_len(&head[..len])
}

/// Returns the bytes that a frame of this length, which begins with `head`, takes on the wire. One
/// that has yet to be segmented, or was merged, takes those of its segments.
pub(super) fn on_wire(head: &[u8], len: usize, header: &NetHeader) -> u64 {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    if header.gso_type == GSO_NONE {
        return wire_bytes(number(len), 1, 0).into();
    }
    // `hdr_len` is no more than a hint: drivers put the whole first segment there.
    let headers = headers_len(head).unwrap_or(USUAL_HEADERS).min(len);
    let segments = (len - headers).div_ceil(usize::from(header.gso_size).max(1)).min(MOST_SEGMENTS);
    wire_bytes(number(len), number(segments), number(headers)).into()
}

/// Returns the length of the Ethernet, IP, and TCP or UDP headers of a frame; `None` if these bytes
/// do not tell.
fn headers_len(head: &[u8]) -> Option<usize> {
    let short = |at: usize| Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let tag = if short(HEADER - 2)? == TAG_8021Q { TAG } else { 0 };
    let ip = HEADER + tag;
    let (protocol, transport) = match short(ip - 2)? {
        0x0800 => (*head.get(ip + 9)?, ip + 4 * usize::from(head.get(ip)? & 15)),
        0x86dd => (*head.get(ip + 6)?, ip + 40),
        _ => return None,
    };
    match protocol {
        6 => Some(transport + 4 * usize::from(head.get(transport + 12)? >> 4)),
        17 => Some(transport + 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use taut_virtq::header::GSO_TCPV4;

    use crate::net::ethernet;

    use super::*;

    /// The beginning of a TCP frame over IPv4 with 12 bytes of options.
    fn tcp() -> [u8; 66] {
        let mut head = [0; 66];
        head[12..15].copy_from_slice(&[8, 0, 0x45]);
        head[14 + 9] = 6;
        head[34 + 12] = 0x80;
        head
    }

    #[test]
    fn a_segmented_frame_counts_as_its_segments_whatever_its_sender_says_of_headers() {
        let whole = NetHeader::default();
        assert_eq!(on_wire(&tcp(), 60, &whole), 84);
        for hdr_len in [0, 66, 1514, u16::MAX] {
            let long = NetHeader { gso_type: GSO_TCPV4, gso_size: 1448, hdr_len, ..whole };
            let expected = 10 * on_wire(&tcp(), 66 + 1448, &whole);
            assert_eq!(on_wire(&tcp(), 66 + 10 * 1448, &long), expected, "{hdr_len}");
        }
        let hostile = NetHeader { gso_type: GSO_TCPV4, gso_size: 0, ..whole };
        assert_eq!(on_wire(&tcp(), 65_000, &hostile), 65_024 + 1364 * (66 + 24));
        assert_eq!(on_wire(&[], 50, &hostile), 84);
    }

    #[test]
    fn a_packet_is_as_long_as_its_longest_segment() {
        let len = |head: &[u8], len, gso_type, gso_size| {
            let ethernet = ethernet::check(head, len).unwrap();
            let header = NetHeader { gso_type, gso_size, ..NetHeader::default() };
            packet_len(head, len, &header, &ethernet, &Body::Host(head))
        };
        let plain = tcp();
        let tagged = [&plain[..12], &[0x81, 0, 0, 7], &plain[12..]].concat();
        assert_eq!(len(&plain, 1518, GSO_NONE, 0), 1500, "with the room of a tag");
        assert_eq!(len(&tagged, 1518, GSO_NONE, 0), 1500);
        assert_eq!(len(&plain, 60_000, GSO_TCPV4, 1448), 1500);
        assert_eq!(len(&tagged, 60_000, GSO_TCPV4, 1448), 1500);
        assert_eq!(len(&plain, 60_000, GSO_TCPV4, 8948), 9000);
        assert_eq!(len(&plain, 1000, GSO_TCPV4, u16::MAX), 986, "it is shorter than a segment");
        let mut unknown = plain;
        unknown[14 + 9] = 132;
        assert_eq!(len(&unknown, 60_000, GSO_TCPV4, 1448), 1500);
        let tagged = [&unknown[..12], &[0x81, 0, 0, 7], &unknown[12..]].concat();
        assert_eq!(len(&tagged, 60_000, GSO_TCPV4, 1448), 1500);
    }

    #[test]
    fn headers_are_those_of_the_frame() {
        let tcp = tcp();
        assert_eq!(headers_len(&tcp), Some(66));
        let tagged = [&tcp[..12], &[0x81, 0, 0, 7], &tcp[12..]].concat();
        assert_eq!(headers_len(&tagged), Some(70));
        let mut v6 = [0; 74];
        v6[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        v6[14 + 6] = 17;
        assert_eq!(headers_len(&v6), Some(62));
        assert_eq!([headers_len(&tcp[..40]), headers_len(&[])], [None; 2]);
    }
}
