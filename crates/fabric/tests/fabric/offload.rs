//! Checksums and segmentation between guests with different offloads.

use taut_api::fabric::PortId;
use taut_virtq::header::{GSO_TCPV4, NEEDS_CSUM, NetHeader};

use super::fabric::{Fabric, mac, vnic};
use super::frames::{tcp_checksum_holds, tcp_payload, tso};
use super::guest::{Guest, LINUX, Model, NO_OFFLOADS};

fn pair(receiver: u64) -> (Fabric, Guest, Guest) {
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1), vnic(1, 1)]);
    let a = Guest::start(fabric.connect(PortId(0)), Model { features: LINUX, ..Model::default() });
    let b = Guest::start(fabric.connect(PortId(1)), Model { features: receiver, ..Model::default() });
    (fabric, a, b)
}

#[test]
fn a_long_frame_stays_whole_between_guests_with_tso() {
    let (fabric, mut a, mut b) = pair(LINUX);
    let (header, sent) = tso(mac(1), mac(0), 60_000, 1448);
    a.send_with(&header, &sent);
    let (got_header, got) = b.receive();
    assert_eq!(got, sent);
    assert_eq!(NetHeader { num_buffers: 0, ..got_header }, header);
    assert_eq!(got_header.num_buffers, 38);
    a.drain();
    assert_eq!(fabric.counters(PortId(1)).rx_frames, 1);
}

#[test]
fn a_receiver_without_offloads_gets_segments_with_checksums() {
    let (fabric, mut a, mut b) = pair(NO_OFFLOADS);
    for _ in 0..8 {
        let (header, sent) = tso(mac(1), mac(0), 60_000, 1448);
        a.send_with(&header, &sent);
        let mut payload = Vec::new();
        while payload.len() < 60_000 {
            let (header, got) = b.receive();
            assert_eq!((header.flags, header.gso_type), (0, 0));
            assert!(tcp_checksum_holds(&got));
            payload.extend_from_slice(tcp_payload(&got));
        }
        assert_eq!(payload, tcp_payload(&sent));
    }
    a.drain();
    assert_eq!(fabric.counters(PortId(1)).rx_frames, 8 * 42);
    assert_eq!(fabric.counters(PortId(0)).tx_frames, 8);
}

#[test]
fn a_receiver_without_checksum_offload_gets_a_completed_checksum() {
    let (_fabric, mut a, mut b) = pair(NO_OFFLOADS);
    let (header, sent) = tso(mac(1), mac(0), 1000, 1448);
    a.send_with(&NetHeader { gso_type: 0, gso_size: 0, ..header }, &sent);
    let (header, got) = b.receive();
    assert_eq!(header.flags, 0);
    assert!(tcp_checksum_holds(&got) && !tcp_checksum_holds(&sent));

    let (_fabric, mut a, mut b) = pair(LINUX);
    let (header, sent) = tso(mac(1), mac(0), 1000, 1448);
    a.send_with(&NetHeader { gso_type: 0, gso_size: 0, ..header }, &sent);
    let (header, got) = b.receive();
    assert_eq!((header.flags, header.gso_type & GSO_TCPV4), (NEEDS_CSUM, 0));
    assert_eq!(got, sent);
}
