//! TCP segments of an emulated card, merged for guests that accept merged frames.

use std::io::Write;
use std::os::unix::net::UnixStream;

use taut_api::fabric::PortId;
use taut_api::fabric::config::PortKind;
use taut_api::link::Link;
use taut_fabric::net::software_offload::{NO_OFFLOADS, Pieces};
use taut_virtq::NetHeader;
use taut_virtq::header::{GSO_TCPV4, NEEDS_CSUM};

use super::fabric::{Fabric, mac, vnic};
use super::frames::{tcp_payload, tso};
use super::guest::{self, Guest, LINUX, Model};

/// Number of segments in a burst, small enough to arrive in one read.
const SEGMENTS: usize = 8;
const MSS: usize = 1448;

struct Rig {
    fabric: Fabric,
    guest: Guest,
    stream: UnixStream,
}

impl Rig {
    fn new(features: u64) -> Self {
        let mut fabric = Fabric::start();
        fabric.configure(Self::ports(true));
        let guest = Guest::start(fabric.connect(PortId(0)), Model { features, ..Model::default() });
        fabric.until_link(PortId(0), Link::Up);
        let stream = fabric.connect(PortId(1));
        fabric.until_link(PortId(1), Link::Up);
        Self { fabric, guest, stream }
    }

    fn ports(lro: bool) -> Vec<taut_api::fabric::config::PortConfig> {
        let mut card = vnic(1, 1);
        card.kind = PortKind::Stream;
        let mut guest = vnic(0, 1);
        guest.lro = lro;
        vec![guest, card]
    }

    /// Sends segments as one burst, and returns them.
    fn send(&mut self) -> Vec<Vec<u8>> {
        let segments = segments();
        let framed = |frame: &Vec<u8>| [&(frame.len() as u32).to_be_bytes(), &frame[..]].concat();
        self.stream.write_all(&segments.iter().flat_map(framed).collect::<Vec<_>>()).unwrap();
        segments
    }
}

fn cut(header: &NetHeader, frame: &[u8]) -> Vec<Vec<u8>> {
    let pieces = Pieces::of(frame, header).unwrap();
    let mut space = vec![0; 70_000];
    (0..pieces.count())
        .map(|index| {
            let len = pieces.write(index, &mut space);
            space[..len].to_vec()
        })
        .collect()
}

fn segments() -> Vec<Vec<u8>> {
    let (header, frame) = tso(mac(0), mac(1), SEGMENTS * MSS, MSS as u16);
    cut(&header, &frame)
}

#[test]
fn a_guest_with_tso_gets_the_segments_of_a_burst_as_one_frame() {
    let mut rig = Rig::new(LINUX);
    let sent = rig.send();
    let (header, frame) = rig.guest.receive();
    assert_eq!((header.flags, header.gso_type, header.gso_size), (NEEDS_CSUM, GSO_TCPV4, MSS as u16));
    assert_eq!(cut(&header, &frame), sent);
    // After a round trip, everything has been counted.
    let (header, pushed) = tso(mac(0), mac(1), 10, MSS as u16);
    rig.stream.write_all(&(pushed.len() as u32).to_be_bytes()).unwrap();
    rig.stream.write_all(&cut(&header, &pushed)[0]).unwrap();
    assert_eq!(tcp_payload(&rig.guest.receive().1).len(), 10);
    let [guest, card] = [0, 1].map(|port| rig.fabric.counters(PortId(port)));
    assert_eq!((guest.rx_merged_frames, guest.rx_merged_segments), (1, SEGMENTS as u64));
    // The last frame may not have been counted yet.
    assert!((SEGMENTS as u64..=SEGMENTS as u64 + 1).contains(&card.tx_frames));
    assert!(card.tx_bytes >= sent.iter().map(|frame| frame.len() as u64).sum());
}

#[test]
fn a_guest_without_tso_gets_every_segment() {
    let mut rig = Rig::new(guest::NO_OFFLOADS);
    for sent in rig.send() {
        let (header, frame) = rig.guest.receive();
        assert_eq!((NetHeader { num_buffers: 1, ..header }, frame), (NO_OFFLOADS, sent));
    }
}

#[test]
fn lro_can_be_disabled_live() {
    let mut rig = Rig::new(LINUX);
    rig.fabric.configure(Rig::ports(false));
    for sent in rig.send() {
        assert_eq!(rig.guest.receive().1, sent);
    }
    rig.fabric.configure(Rig::ports(true));
    let sent = rig.send();
    let (header, frame) = rig.guest.receive();
    assert_eq!(cut(&header, &frame), sent);
}
