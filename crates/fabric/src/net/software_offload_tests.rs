//! Pieces against what a receiver computes: lengths, sequence numbers, checksums and bytes.

use proptest::prelude::*;
use taut_virtq::header::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM};

use super::super::ethernet::MAX_TAGGED;
use super::super::vlan::TagEdit;
use super::*;

/// A slow reference checksum: 16-bit ones' complement addition, word by word.
fn reference_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u16;
    for pair in bytes.chunks(2) {
        let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
        let (added, carry) = sum.overflowing_add(word);
        sum = added + u16::from(carry);
    }
    sum
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    v4: bool,
    tcp: bool,
    /// Number of 32-bit words of options behind the IPv4 and TCP headers.
    options: [usize; 2],
}

impl Shape {
    fn l4(self) -> usize {
        14 + if self.v4 { 20 + 4 * self.options[0] } else { 40 }
    }

    fn headers(self) -> usize {
        self.l4() + if self.tcp { 20 + 4 * self.options[1] } else { 8 }
    }

    fn checksum_offset(self) -> u16 {
        if self.tcp { 16 } else { 6 }
    }

    fn protocol(self) -> u8 {
        if self.tcp { TCP } else { UDP }
    }

    fn addresses(self) -> Range<usize> {
        if self.v4 { 26..34 } else { 22..54 }
    }

    /// Builds a frame as a guest leaves it: the checksum field holds the sum of the pseudo header.
    fn frame(self, payload: &[u8], tcp_flags: u8) -> Vec<u8> {
        let mut frame = vec![0; self.headers()];
        frame[..12].copy_from_slice(&[2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
        frame[12..14].copy_from_slice(if self.v4 { &IPV4 } else { &IPV6 });
        let ip_len = self.headers() - 14 + payload.len();
        if self.v4 {
            frame[14] = 0x45 + self.options[0] as u8;
            frame[16..18].copy_from_slice(&(ip_len as u16).to_be_bytes());
            frame[18..20].copy_from_slice(&0xfffe_u16.to_be_bytes());
            frame[23] = self.protocol();
            frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame[14] = 0x60;
            frame[18..20].copy_from_slice(&((ip_len - 40) as u16).to_be_bytes());
            frame[20] = self.protocol();
            for (at, byte) in frame[22..54].iter_mut().enumerate() {
                *byte = at as u8 * 7;
            }
        }
        let l4 = self.l4();
        if self.tcp {
            frame[l4 + 4..l4 + 8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
            frame[l4 + 12] = ((5 + self.options[1]) as u8) << 4;
            frame[l4 + 13] = tcp_flags;
        } else {
            frame[l4 + 4..l4 + 6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
        }
        frame.extend_from_slice(payload);
        let pseudo = self.pseudo(&frame);
        let field = l4 + usize::from(self.checksum_offset());
        frame[field..field + 2].copy_from_slice(&reference_sum(&pseudo).to_be_bytes());
        frame
    }

    fn pseudo(self, frame: &[u8]) -> Vec<u8> {
        let mut pseudo = frame[self.addresses()].to_vec();
        pseudo.extend((frame.len() as u32 - self.l4() as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, self.protocol()]);
        pseudo
    }

    /// Asserts that a receiver accepts both checksums and all lengths.
    fn check(self, piece: &[u8]) {
        let ip_len = piece.len() - 14;
        if self.v4 {
            assert_eq!(usize::from(u16::from_be_bytes([piece[16], piece[17]])), ip_len);
            assert_eq!(reference_sum(&piece[14..self.l4()]), 0xffff, "IPv4 header checksum");
        } else {
            assert_eq!(usize::from(u16::from_be_bytes([piece[18], piece[19]])), ip_len - 40);
        }
        if !self.tcp {
            let at = self.l4() + 4;
            assert_eq!(usize::from(u16::from_be_bytes([piece[at], piece[at + 1]])), piece.len() - self.l4());
        }
        self.check_l4(piece);
    }

    fn check_l4(self, piece: &[u8]) {
        let mut whole = self.pseudo(piece);
        whole.extend_from_slice(&piece[self.l4()..]);
        assert_eq!(reference_sum(&whole), 0xffff, "TCP or UDP checksum");
    }

    fn header(self, gso_size: u16) -> NetHeader {
        let gso_type = match (gso_size, self.tcp, self.v4) {
            (0, ..) => GSO_NONE,
            (_, true, true) => GSO_TCPV4,
            (_, true, false) => GSO_TCPV6,
            (_, false, _) => GSO_UDP_L4,
        };
        NetHeader {
            flags: NEEDS_CSUM,
            gso_type,
            gso_size,
            csum_start: self.l4() as u16,
            csum_offset: self.checksum_offset(),
            ..NO_OFFLOADS
        }
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    (any::<bool>(), any::<bool>(), 0_usize..=10, 0_usize..=10).prop_map(|(v4, tcp, ip, l4)| Shape {
        v4,
        tcp,
        options: [ip, l4],
    })
}

fn pieces(frame: &[u8], header: &NetHeader) -> Vec<Vec<u8>> {
    check_header(header, frame.len()).unwrap();
    let pieces = Pieces::of(frame, header).unwrap();
    let mut space = vec![0; MAX_TAGGED];
    (0..pieces.count())
        .map(|index| {
            let len = pieces.write(index, &mut space);
            space[..len].to_vec()
        })
        .collect()
}

/// The frame with a VLAN tag, and the matching header.
fn tagged(frame: &[u8], header: &NetHeader) -> (Vec<u8>, NetHeader) {
    let mut tagged = frame[..12].to_vec();
    tagged.extend([0x81, 0x00, 0x20, 0x0a]);
    tagged.extend(&frame[12..]);
    (tagged, TagEdit::Insert(0x200a).header(header))
}

proptest! {
    #[test]
    fn every_segment_of_a_tagged_frame_has_the_tag_and_is_otherwise_the_same(
        shape in shapes(),
        payload in prop::collection::vec(any::<u8>(), 1..9000),
        size in prop_oneof![Just(0), 500_u16..3000],
    ) {
        let frame = shape.frame(&payload, 0x18);
        let header = shape.header(size);
        let (with_tag, its_header) = tagged(&frame, &header);
        let plain = pieces(&frame, &header).iter().map(|piece| tagged(piece, &NO_OFFLOADS).0).collect::<Vec<_>>();
        prop_assert_eq!(pieces(&with_tag, &its_header), plain);
    }

    #[test]
    fn segments_are_acceptable_to_a_receiver_and_carry_every_byte(
        shape in shapes(),
        payload in prop::collection::vec(any::<u8>(), 1..20_000),
        size in 160_u16..3000,
    ) {
        let flags = 0xf9; // CWR, FIN, PSH and more
        let frame = shape.frame(&payload, flags);
        let segments = pieces(&frame, &shape.header(size));
        prop_assert_eq!(segments.len(), payload.len().div_ceil(usize::from(size)));
        let mut got = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            shape.check(segment);
            if shape.v4 {
                let id = u16::from_be_bytes([segment[18], segment[19]]);
                prop_assert_eq!(id, 0xfffe_u16.wrapping_add(index as u16));
            }
            if shape.tcp {
                let at = shape.l4();
                let sequence = u32::from_be_bytes(segment[at + 4..at + 8].try_into().unwrap());
                prop_assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(got.len() as u32));
                let last = index + 1 == segments.len();
                let expected = match (index == 0, last) {
                    (true, true) => flags,
                    (true, false) => flags & !FIN_PSH,
                    (false, true) => flags & !CWR,
                    (false, false) => flags & !FIN_PSH & !CWR,
                };
                prop_assert_eq!(segment[at + 13], expected);
            }
            got.extend_from_slice(&segment[shape.headers()..]);
        }
        prop_assert_eq!(got, payload);
    }

    #[test]
    fn a_checksum_is_completed_and_nothing_else_changes(
        shape in shapes(),
        payload in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        let frame = shape.frame(&payload, 0x18);
        let [piece] = &pieces(&frame, &shape.header(0))[..] else { panic!("one piece") };
        shape.check_l4(piece);
        let field = shape.l4() + usize::from(shape.checksum_offset());
        prop_assert_eq!(&piece[..field], &frame[..field]);
        prop_assert_eq!(&piece[field + 2..], &frame[field + 2..]);
    }

    #[test]
    fn any_header_on_any_bytes_yields_pieces_or_a_drop_reason(
        mut frame in prop::collection::vec(any::<u8>(), 14..300),
        ip in prop::sample::select(vec![IPV4, IPV6, [0x08, 0x06]]),
        protocol in prop::sample::select(vec![TCP, UDP, 1]),
        gso_type in prop::sample::select(vec![0_u8, 1, 4, 5, 3, 0x81, 0x84, 0x80, 77]),
        words in prop::array::uniform4(0_u16..400),
        flags in 0_u8..4,
    ) {
        frame[12..14].copy_from_slice(&ip);
        for at in [20, 23] {
            if let Some(byte) = frame.get_mut(at) {
                *byte = protocol;
            }
        }
        let [hdr_len, gso_size, csum_start, csum_offset] = words;
        let header = NetHeader { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, num_buffers: 0 };
        if check_header(&header, frame.len()).is_ok()
            && !Offloads::NONE.take(&header, 0)
            && let Ok(pieces) = Pieces::of(&frame, &header)
        {
            let mut space = vec![0; MAX_TAGGED];
            for index in 0..pieces.count() {
                prop_assert!(pieces.write(index, &mut space) <= frame.len());
            }
        }
    }
}

#[test]
fn a_receiver_gets_only_the_offloads_that_it_accepts() {
    let tcp4 = NetHeader { flags: NEEDS_CSUM, gso_type: GSO_TCPV4, gso_size: 1448, ..NO_OFFLOADS };
    let ecn = NetHeader { gso_type: GSO_TCPV4 | GSO_ECN, ..tcp4 };
    let sum = NetHeader { gso_type: GSO_NONE, ..tcp4 };
    let only_sum = Offloads { checksum: true, ..Offloads::NONE };
    let no_ecn = Offloads { ecn: false, ..Offloads::TCP };
    for (offloads, takes) in [
        (Offloads::NONE, [true, false, false, false]),
        (only_sum, [true, true, false, false]),
        (no_ecn, [true, true, true, false]),
        (Offloads::TCP, [true; 4]),
    ] {
        let taken = [NO_OFFLOADS, sum, tcp4, ecn].map(|header| offloads.take(&header, 0x0800));
        assert_eq!(taken, takes, "{offloads:?}");
    }
}

#[test]
fn headers_that_contradict_the_frame_are_refused() {
    let sum = NetHeader { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 16, ..NO_OFFLOADS };
    assert_eq!(check_header(&sum, 52), Ok(()));
    assert_eq!(check_header(&sum, 51), Err(DropReason::BadHeader));
    for gso_type in [GSO_ECN, 2, 3, 77] {
        let odd = NetHeader { gso_type, gso_size: 1, ..NO_OFFLOADS };
        assert_eq!(check_header(&odd, 1000), Err(DropReason::BadHeader), "{gso_type}");
    }
    let no_size = NetHeader { gso_type: GSO_TCPV4, ..NO_OFFLOADS };
    assert_eq!(check_header(&no_size, 1000), Err(DropReason::BadHeader));
}

#[test]
fn a_frame_represents_a_bounded_number_of_segments() {
    let tcp = Shape { v4: true, tcp: true, options: [0, 0] };
    let udp = Shape { tcp: false, ..tcp };
    for (shape, most) in [(tcp, MOST_TCP_SEGMENTS), (udp, MOST_UDP_SEGMENTS)] {
        for size in [1, 40] {
            let count = |payload: usize| {
                let frame = shape.frame(&vec![7; payload], 0x18);
                Pieces::of(&frame, &shape.header(size as u16)).map(|pieces| pieces.count())
            };
            assert_eq!(count(most * size).unwrap(), most);
            assert_eq!(count(most * size + 1).unwrap_err(), DropReason::BadHeader);
        }
    }
}
