//! Bytes on the wire: frames that cross the edge between ports and uplinks are counted as they are
//! outside, so that the use of an uplink can be compared with its speed.

use taut_api::fabric::counters::PortWord;
use taut_uplink::netioc::wire_bytes;
use taut_virtq::header::{GSO_ECN, GSO_NONE, GSO_UDP_L4, NEEDS_CSUM, NetHeader};

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
const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// Extension headers of IPv6 that a kernel skips when it segments a packet: hop-by-hop options,
/// routing and destination options (RFC 8200, section 4).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// Length of the longest headers of TCP: with all options.
const LONGEST_TCP: usize = 60;
/// Length of the headers that are read of a frame: with a tag, IPv4 with options, and TCP with
/// options.
const READ_HEADERS: usize = HEADER + TAG + 60 + LONGEST_TCP;

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
    let segment = repeated_len(head, header, body).map(|headers| headers + usize::from(header.gso_size));
    segment.map_or(len, |segment| segment.min(len)).saturating_sub(HEADER + tag)
}

/// Returns the length of the headers that each segment of a frame repeats; `None` if it is not
/// known.
///
/// A kernel that segments the frame follows its headers, and a card begins at the checksum that is
/// left to it. Those of a hostile guest may differ, and the longer ones count. Both are decided by
/// bytes that no guest can change any more; by those of TCP's header, it gains
/// [`LONGEST_TCP`] at most.
fn repeated_len(head: &[u8], header: &NetHeader, body: &Body<'_>) -> Option<usize> {
    let summed_from = (header.flags & NEEDS_CSUM != 0).then_some(header.csum_start.into());
    let transport = match transport(head) {
        Transport::At(_, at) => Some(at.max(summed_from.unwrap_or(0))),
        // A kernel segments no such packet, so a card would.
        Transport::Unknown => summed_from,
        Transport::Beyond => None,
    }?;
    if header.gso_type & !GSO_ECN == GSO_UDP_L4 {
        return Some(transport + UDP_HEADER);
    }
    let tcp = tcp_len(head, transport).or_else(|| late_tcp_len(body, transport));
    Some(transport + tcp.unwrap_or(LONGEST_TCP))
}

/// Returns the length of a TCP header that is behind a guest's first bytes, as it is in TCP over
/// IPv6.
#[inline(never)]
fn late_tcp_len(body: &Body<'_>, transport: usize) -> Option<usize> {
    let Body::Guest(frame) = body else { return None };
    let mut head = [0; READ_HEADERS];
    let len = frame.copy_to(&mut head);
    tcp_len(&head[..len], transport)
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
    match transport(head) {
        Transport::At(TCP, at) => Some(at + tcp_len(head, at)?),
        Transport::At(UDP, at) => Some(at + UDP_HEADER),
        _ => None,
    }
}

/// Returns the length of the TCP header at this offset.
fn tcp_len(head: &[u8], at: usize) -> Option<usize> {
    Some(4 * usize::from(head.get(at + 12)? >> 4))
}

/// Header of TCP or UDP in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// Its protocol and offset.
    At(u8, usize),
    /// The frame is of another protocol.
    Unknown,
    /// The header is behind these bytes.
    Beyond,
}

/// Finds the TCP or UDP header of a frame that begins with `head`: behind a tag, options of IPv4
/// and extension headers of IPv6.
fn transport(head: &[u8]) -> Transport {
    find_transport(head).unwrap_or(Transport::Beyond)
}

/// Returns the same, or `None` if it is behind these bytes.
fn find_transport(head: &[u8]) -> Option<Transport> {
    let short = |at: usize| Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let tag = if short(HEADER - 2)? == TAG_8021Q { TAG } else { 0 };
    let ip = HEADER + tag;
    let (mut protocol, mut at) = match short(ip - 2)? {
        0x0800 => (*head.get(ip + 9)?, ip + 4 * usize::from(head.get(ip)? & 15)),
        0x86dd => (*head.get(ip + 6)?, ip + 40),
        _ => return Some(Transport::Unknown),
    };
    while short(ip - 2)? == 0x86dd && EXTENSIONS.contains(&protocol) {
        (protocol, at) = (*head.get(at)?, at + 8 * (1 + usize::from(*head.get(at + 1)?)));
    }
    Some(if matches!(protocol, TCP | UDP) { Transport::At(protocol, at) } else { Transport::Unknown })
}

#[cfg(test)]
mod tests {
    use taut_virtq::header::{GSO_TCPV4, GSO_TCPV6};

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
        assert_eq!(len(&unknown, 60_000, GSO_TCPV4, 1448), 59_986, "no more than the whole is known");
    }

    /// The beginning of a TCP frame over IPv6 with these extension headers, without options.
    fn extended(extensions: &[(u8, u8)]) -> Vec<u8> {
        let mut frame = [&[0; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0]].concat();
        let next = extensions.iter().map(|(kind, _)| *kind).chain([6]);
        let mut next = next.collect::<Vec<_>>().into_iter();
        frame.extend([next.next().unwrap(), 64]);
        frame.extend([0; 32]);
        for (_, eights) in extensions {
            frame.extend([next.next().unwrap(), *eights]);
            frame.resize(frame.len() + 6 + 8 * usize::from(*eights), 0);
        }
        let transport = frame.len();
        frame.resize(transport + 100, 0);
        frame[transport + 12] = 0x50;
        frame
    }

    #[test]
    fn a_segment_repeats_extension_headers_whatever_its_sender_says_of_them() {
        let len = |frame: &[u8], csum_start: Option<usize>| {
            let (flags, csum_start) = csum_start.map_or((0, 0), |at| (NEEDS_CSUM, at as u16));
            let header =
                NetHeader { gso_type: GSO_TCPV6, gso_size: 1000, flags, csum_start, ..NetHeader::default() };
            let ethernet = ethernet::check(frame, 60_000).unwrap();
            // A guest's first bytes are all that is read, as if the rest could change.
            packet_len(&frame[..64], 60_000, &header, &ethernet, &Body::Host(frame))
        };
        let whole = 60_000 - HEADER;
        for (extensions, longer) in [
            (&[][..], Some(0)),
            (&[(0, 0)], Some(8)),
            (&[(43, 2)], Some(24)),
            (&[(60, 255)], Some(2048)),
            (&[(0, 0), (60, 30)], Some(8 + 248)),
            (&[(0, 1), (60, 0)], None),
        ] {
            let frame = extended(extensions);
            let real = longer.map(|longer| 54 + longer);
            // The length of TCP's header is behind the first bytes: the longest one is assumed.
            let expected = longer.map_or(whole, |longer| 40 + longer + LONGEST_TCP + 1000);
            for said in [None, Some(14), Some(54), real] {
                assert_eq!(len(&frame, said), expected, "{extensions:?} {said:?}");
            }
        }
        assert_eq!(
            len(&extended(&[]), Some(5000)),
            5000 - HEADER + LONGEST_TCP + 1000,
            "a card begins there"
        );
        let mut tunnel = extended(&[]);
        tunnel[20] = 47;
        assert_eq!(len(&tunnel, Some(100)), 100 - HEADER + LONGEST_TCP + 1000, "that of the inner packet");
        assert_eq!(len(&tunnel, None), whole);
        let frame = extended(&[(60, 255)]);
        let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
        assert_eq!(len(&tagged, Some(58)), 40 + 2048 + LONGEST_TCP + 1000);
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
