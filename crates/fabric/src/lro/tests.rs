//! Merged frames against the segments that they consist of.

use proptest::prelude::*;
use taut_virtq::header::{self, NetHeader};

use super::*;
use crate::net::checksum;
use crate::net::software_offload::{NO_OFFLOADS, Offloads, Pieces, check_header};

/// A connection and the form of its headers.
#[derive(Debug, Clone, Copy)]
struct Shape {
    v4: bool,
    /// `DF` (don't fragment) is set, for IPv4.
    atomic: bool,
    port: u16,
    /// Number of 32-bit words of TCP options.
    options: usize,
    ack: u32,
}

const V4: Shape = Shape { v4: true, atomic: true, port: 5201, options: 3, ack: 77 };
const V6: Shape = Shape { v4: false, ..V4 };

impl Shape {
    fn l4(self) -> usize {
        if self.v4 { 34 } else { 54 }
    }

    fn headers(self) -> usize {
        self.l4() + 20 + 4 * self.options
    }

    /// Builds a segment as it comes from a wire, with complete checksums.
    fn segment(self, id: u16, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; self.headers()];
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        frame.extend_from_slice(payload);
        let (l4, len) = (self.l4(), frame.len());
        if self.v4 {
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[14] = 0x45;
            frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
            frame[18..20].copy_from_slice(&id.to_be_bytes());
            frame[20] = if self.atomic { 0x40 } else { 0 };
            frame[22..24].copy_from_slice(&[64, 6]);
            frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = checksum::fold(checksum::add(0, &frame[14..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            frame[14] = 0x60;
            frame[18..20].copy_from_slice(&((len - 54) as u16).to_be_bytes());
            frame[20..22].copy_from_slice(&[6, 64]);
            frame[22..54].fill(0xfd);
        }
        frame[l4..l4 + 2].copy_from_slice(&self.port.to_be_bytes());
        frame[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        frame[l4 + 8..l4 + 12].copy_from_slice(&self.ack.to_be_bytes());
        frame[l4 + 12] = ((5 + self.options) as u8) << 4;
        frame[l4 + 13] = flags;
        frame[l4 + 14..l4 + 16].copy_from_slice(&[1, 0xf5]);
        frame[l4 + 20..l4 + 20 + 4 * self.options].fill(1);
        let sum = checksum::fold(checksum::add(self.pseudo(&frame), &frame[l4..]));
        // `Pieces` never writes a zero checksum.
        let sum = if sum == 0 { 0xffff } else { sum };
        frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn pseudo(self, frame: &[u8]) -> u64 {
        let addresses = if self.v4 { 26..34 } else { 22..54 };
        checksum::add(6 + (frame.len() - self.l4()) as u64, &frame[addresses])
    }

    /// Makes the checksum partial, as a local stack with checksum offload leaves it.
    fn partial(self, mut frame: Vec<u8>) -> (NetHeader, Vec<u8>) {
        let at = self.l4() + 16;
        let sum = !checksum::fold(self.pseudo(&frame));
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let header = NetHeader {
            flags: header::NEEDS_CSUM,
            csum_start: self.l4() as u16,
            csum_offset: 16,
            ..NO_OFFLOADS
        };
        (header, frame)
    }
}

type Frames = Vec<(NetHeader, Vec<u8>)>;

/// Passes frames through an [`Lro`] in bursts of `burst` frames, and returns the result.
fn through(frames: &Frames, burst: usize) -> Frames {
    let mut lro = Lro::default();
    let mut out = Vec::new();
    let drain = |lro: &mut Lro, out: &mut Frames| {
        while let Some(merged) = lro.ready() {
            out.push((merged.header, merged.bytes.to_vec()));
            lro.sent();
        }
    };
    for frames in frames.chunks(burst) {
        for (header, frame) in frames {
            let mut offers = 0;
            loop {
                offers += 1;
                assert!(offers < 3, "a frame is offered at most twice");
                match lro.offer(header, frame, true) {
                    Offer::Taken => break,
                    Offer::Pass => {
                        out.push((*header, frame.clone()));
                        break;
                    }
                    Offer::Later => drain(&mut lro, &mut out),
                }
            }
        }
        lro.close();
        drain(&mut lro, &mut out);
        assert!(lro.ready().is_none() && lro.used == 0, "nothing stays behind");
    }
    out
}

/// Cuts frames up as for a receiver without offloads.
fn cut(frames: &Frames) -> Vec<Vec<u8>> {
    let mut space = vec![0; MAX_FRAME];
    let mut out = Vec::new();
    for (header, frame) in frames {
        check_header(header, frame.len()).unwrap();
        if Offloads::NONE.take(header, 0x0800) {
            out.push(frame.clone());
            continue;
        }
        let pieces = Pieces::of(frame, header).unwrap();
        for index in 0..pieces.count() {
            let len = pieces.write(index, &mut space);
            out.push(space[..len].to_vec());
        }
    }
    out
}

/// A segment of one of several flows, or another frame.
#[derive(Debug, Clone)]
struct Next {
    flow: usize,
    len: usize,
    flags: u8,
    /// Number of bytes missing before the segment.
    gap: u32,
    /// Distance of the identification from the last one.
    step: u16,
    partial: bool,
    /// Offset of a byte that is changed after the checksums are computed.
    broken: Option<usize>,
    ack: u32,
}

fn next() -> impl Strategy<Value = Next> {
    let len = prop_oneof![6 => Just(1448_usize), 1 => 1..1500_usize, 1 => Just(0)];
    let flags = prop_oneof![12 => Just(0x10_u8), 3 => Just(0x18), 1 => any::<u8>()];
    let gap = prop_oneof![12 => Just(0_u32), 1 => 0..3000_u32];
    let step = prop_oneof![12 => Just(1_u16), 2 => Just(0), 1 => any::<u16>()];
    let broken = prop_oneof![15 => Just(None), 1 => (0..1500_usize).prop_map(Some)];
    let ack = prop_oneof![12 => Just(1_u32), 1 => Just(2)];
    (0..10_usize, len, flags, gap, step, any::<bool>(), broken, ack).prop_map(
        |(flow, len, flags, gap, step, partial, broken, ack)| Next {
            flow,
            len,
            flags,
            gap,
            step,
            partial,
            broken,
            ack,
        },
    )
}

/// Builds frames as described, most of them of flow 0.
fn frames(steps: &[Next], v4: bool) -> Frames {
    let mut state = [(0x1000_u16, 0xffff_f000_u32); 10];
    steps
        .iter()
        .map(|next| {
            let flow = if next.flow < 6 { 0 } else { next.flow };
            let (id, sequence) = &mut state[flow];
            *id = id.wrapping_add(next.step);
            *sequence = sequence.wrapping_add(next.gap);
            // Without `DF`, so that identifications matter.
            let shape = Shape { v4, atomic: false, port: flow as u16, ack: next.ack, options: 3 };
            let payload: Vec<_> = (0..next.len).map(|at| (at * 7) as u8 ^ *sequence as u8).collect();
            let mut frame = shape.segment(*id, *sequence, next.flags, &payload);
            *sequence = sequence.wrapping_add(next.len as u32);
            if let Some(at) = next.broken {
                let at = 12 + at % (frame.len() - 12);
                frame[at] ^= 0x40;
                (NO_OFFLOADS, frame)
            } else if next.partial {
                shape.partial(frame)
            } else {
                (NO_OFFLOADS, frame)
            }
        })
        .collect()
}

/// The flow of a frame, within which the order is kept.
fn flow_of(frame: &[u8]) -> Vec<u8> {
    let v4 = frame[12..14] == [8, 0];
    let l4 = if v4 { 34 } else { 54 };
    [&frame[12..14], &frame[if v4 { 26..34 } else { 22..54 }], &frame[l4..l4 + 4]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn merged_frames_yield_their_segments_byte_for_byte_and_in_order(
        steps in prop::collection::vec(next(), 1..120),
        v4: bool,
        burst in 1_usize..100,
    ) {
        let frames = frames(&steps, v4);
        let out = through(&frames, burst);
        let (mut wanted, mut got) = (cut(&frames), cut(&out));
        // Order is kept within flows, so a stable sort by flow makes both sides equal.
        wanted.sort_by_key(|frame| flow_of(frame));
        got.sort_by_key(|frame| flow_of(frame));
        prop_assert_eq!(wanted, got);
        for (header, frame) in &out {
            prop_assert!(frame.len() <= MAX_FRAME);
            if header.gso_type != header::GSO_NONE {
                prop_assert_eq!(frame.len(), usize::from(header.hdr_len) + frame[usize::from(header.hdr_len)..].len());
                prop_assert!(frame.len() > usize::from(header.hdr_len + header.gso_size), "more than one segment");
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_merged_or_passed(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        ip in prop::sample::select(vec![[8_u8, 0], [0x86, 0xdd]]),
        version in prop::sample::select(vec![0x45_u8, 0x60, 0x46]),
        flags in 0_u8..4,
    ) {
        let mut frame = frame;
        for (at, byte) in [(12, ip[0]), (13, ip[1]), (14, version), (20, 6), (23, 6)] {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let header = NetHeader { flags, ..NO_OFFLOADS };
        prop_assert_eq!(through(&vec![(header, frame.clone())], 1), vec![(header, frame)]);
    }
}

/// Builds `count` full segments in a row.
fn stream(shape: Shape, count: u16, size: usize) -> Frames {
    let one = |i: u16| shape.segment(500 + i, 1000 + u32::from(i) * size as u32, 0x10, &vec![i as u8; size]);
    (0..count).map(|i| (NO_OFFLOADS, one(i))).collect()
}

#[test]
fn a_burst_of_one_flow_becomes_one_frame() {
    for shape in [V4, V6] {
        let segments = stream(shape, 20, 1448);
        let out = through(&segments, 64);
        assert_eq!(out.len(), 1);
        let (header, frame) = &out[0];
        assert_eq!(frame.len(), shape.headers() + 20 * 1448);
        assert_eq!(header.gso_type, if shape.v4 { header::GSO_TCPV4 } else { header::GSO_TCPV6 });
        assert_eq!((header.flags, header.gso_size), (header::NEEDS_CSUM, 1448));
        assert_eq!(usize::from(header.hdr_len), shape.headers());
        assert_eq!(cut(&out), cut(&segments));
    }
}

#[test]
fn a_merged_frame_ends_at_64_kib_and_another_one_follows() {
    let segments = stream(V4, 64, 1448);
    let out = through(&segments, 64);
    assert_eq!(out.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(), [45, 19].map(|n| 66 + n * 1448));
    assert_eq!(cut(&out), cut(&segments));
}

#[test]
fn repeated_identifications_are_merged_only_in_packets_that_cannot_be_fragmented() {
    for (atomic, frames) in [(true, 1), (false, 5)] {
        let shape = Shape { atomic, ..V4 };
        let one = |i: u32| (NO_OFFLOADS, shape.segment(0, i * 1000, 0x10, &[1; 1000]));
        assert_eq!(through(&(0..5).map(one).collect(), 64).len(), frames);
    }
}

#[test]
fn different_timestamps_pure_acknowledgements_and_wrong_checksums_prevent_merging() {
    let mut segments = stream(V4, 6, 1000);
    let ts = 34 + 20 + 5;
    // Another timestamp, with a correct checksum.
    segments[2].1[ts] = 9;
    segments[2].1[ts - 2] = 1_u8.wrapping_sub(8);
    let at = V4.l4() + 16;
    segments[2].1[at..at + 2].fill(0);
    let sum = checksum::fold(checksum::add(V4.pseudo(&segments[2].1), &segments[2].1[34..]));
    segments[2].1[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    // A corrupted payload.
    segments[4].1[100] ^= 1;
    let out = through(&segments, 64);
    assert_eq!(cut(&out), cut(&segments));
    assert_eq!(out.len(), 5);
    assert_eq!(out[3].1, segments[4].1, "what is broken stays as broken as it came");
}

#[test]
fn a_segment_with_psh_completes_a_frame_and_a_single_one_passes_at_once() {
    let mut lro = Lro::default();
    let pushed = V4.segment(1, 1, 0x18, b"question");
    assert_eq!(lro.offer(&NO_OFFLOADS, &pushed, true), Offer::Pass);
    let data = V4.segment(2, 9, 0x10, &[0; 1000]);
    let last = V4.segment(3, 1009, 0x18, &[0; 10]);
    assert_eq!(lro.offer(&NO_OFFLOADS, &data, true), Offer::Taken);
    assert!(lro.ready().is_none());
    assert_eq!(lro.offer(&NO_OFFLOADS, &last, true), Offer::Taken);
    let merged = lro.ready().expect("the last one is in");
    assert_eq!((merged.segments, merged.repeated), (2, V4.headers()));
}

#[test]
fn unwanted_frames_pass_after_the_merged_frame_of_their_flow() {
    let mut lro = Lro::default();
    let [one, two] = [V4.segment(1, 0, 0x10, &[0; 100]), V4.segment(2, 100, 0x10, &[0; 100])];
    assert_eq!(lro.offer(&NO_OFFLOADS, &one, false), Offer::Pass);
    assert_eq!(lro.offer(&NO_OFFLOADS, &one, true), Offer::Taken);
    assert_eq!(lro.offer(&NO_OFFLOADS, &two, false), Offer::Later);
    assert_eq!(lro.ready().expect("the first one").bytes, one);
    lro.sent();
    assert_eq!(lro.offer(&NO_OFFLOADS, &two, false), Offer::Pass);
}
