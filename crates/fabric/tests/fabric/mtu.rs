//! MTUs of ports: jumbo frames, and frames that are too long.

use taut_api::fabric::config::PortConfig;
use taut_api::fabric::{DropReason, PortId};
use taut_virtq::header::{GSO_TCPV6, NEEDS_CSUM, NetHeader};

use super::fabric::{Fabric, mac, vnic};
use super::frames::{frame, tcp_checksum_holds, tcp_payload, tso};
use super::guest::{Guest, LINUX, Model, NO_OFFLOADS};

fn with(id: u16, mtu: u16) -> PortConfig {
    PortConfig { mtu: Some(mtu), ..vnic(id, 1) }
}

fn start(fabric: &Fabric, id: u16, features: u64) -> Guest {
    Guest::start(fabric.connect(PortId(id)), Model { features, ..Model::default() })
}

fn too_long(fabric: &Fabric, port: u16) -> u64 {
    let drops = fabric.counters(PortId(port)).tx_drops;
    assert!(drops.iter().all(|(reason, _)| *reason == DropReason::Oversize), "{drops:?}");
    drops.iter().map(|(_, count)| count).sum()
}

#[test]
fn a_frame_is_dropped_if_its_packet_or_a_segment_is_longer_than_the_mtu() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![with(0, 1500), with(1, 1500)]);
    let [mut from, mut to] = [0, 1].map(|id| start(&fabric, id, LINUX));
    for (mtu, dropped) in [(1500_u16, 2), (9000, 4), (9190, 6), (1280, 8)] {
        fabric.configure(vec![with(0, mtu), with(1, mtu)]);
        // A frame without a tag may use the room of one.
        let longest = 18 + usize::from(mtu);
        // The first frame teaches the flow cache, which must not let the next one pass.
        for len in [longest, longest + 1, longest] {
            from.send(&frame(mac(1), mac(0), 1, len));
        }
        assert_eq!([to.receive().1.len(), to.receive().1.len()], [longest; 2], "{mtu}");
        for (mss, passes) in [(mtu - 40, true), (mtu - 39, false), (mtu - 40, true)] {
            let (header, sent) = tso(mac(1), mac(0), 30_000, mss);
            from.send_with(&header, &sent);
            if passes {
                let (got, bytes) = to.receive();
                assert_eq!((got.gso_size, bytes), (mss, sent), "{mtu}");
            }
        }
        // The sender's header says nothing of the real length.
        let (header, sent) = tso(mac(1), mac(0), 1000, u16::MAX);
        from.send_with(&header, &sent);
        assert_eq!(to.receive().1, sent, "one segment, which fits");
        from.drain();
        assert_eq!(too_long(&fabric, 0), dropped, "{mtu}");
    }
}

/// A TCP frame over IPv6, whose headers are longer than the fabric's first look at a frame. It has
/// destination options of this length, a multiple of 8, unless that is 0.
fn tso_v6(options: u16, payload: u16, mss: u16) -> (NetHeader, Vec<u8>) {
    let mut frame = [&mac(1).0[..], &mac(0).0[..], &[0x86, 0xdd, 0x60, 0, 0, 0][..]].concat();
    frame.extend((options + 20 + payload).to_be_bytes());
    frame.extend([if options == 0 { 6 } else { 60 }, 64]);
    frame.extend([0xfd; 32]);
    if options > 0 {
        frame.extend([6, (options / 8 - 1) as u8, 1, options as u8 - 4]);
        frame.resize(54 + usize::from(options), 0);
    }
    let transport = frame.len();
    frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(transport + 20 + usize::from(payload), 7);
    let header = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV6,
        hdr_len: transport as u16 + 20,
        gso_size: mss,
        csum_start: transport as u16,
        csum_offset: 16,
        num_buffers: 0,
    };
    (header, frame)
}

#[test]
fn segments_of_ipv6_are_measured_to_the_byte_with_extension_headers() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![with(0, 1500), with(1, 1500)]);
    let [mut from, mut to] = [0, 1].map(|id| start(&fabric, id, LINUX));
    let passing = |options| [(options, 1440 - options, true), (options, 1441 - options, false)];
    let tried: Vec<_> = [0, 8, 64, 0].into_iter().flat_map(passing).collect();
    for &(options, mss, passes) in &tried {
        let (honest, sent) = tso_v6(options, 30_000, mss);
        from.send_with(&honest, &sent);
        if passes {
            let (got, bytes) = to.receive();
            assert!(got.gso_size == mss && bytes == sent, "{options} {mss}");
        } else {
            // The sender denies its extension headers.
            from.send_with(&NetHeader { csum_start: 54, hdr_len: 74, ..honest }, &sent);
        }
    }
    from.drain();
    assert_eq!(too_long(&fabric, 0), tried.len() as u64);
}

#[test]
fn a_jumbo_frame_is_segmented_for_a_receiver_without_offloads() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![with(0, 9000), with(1, 9000)]);
    let mut from = start(&fabric, 0, LINUX);
    let model = Model { features: NO_OFFLOADS, queue_size: 64, rx_buffer: 9216 };
    let mut plain = Guest::start(fabric.connect(PortId(1)), model);
    let (header, sent) = tso(mac(1), mac(0), 60_000, 8960);
    from.send_with(&header, &sent);
    let mut payload = Vec::new();
    while payload.len() < 60_000 {
        let (header, piece) = plain.receive();
        assert_eq!(header.gso_type, NetHeader::default().gso_type);
        assert!(piece.len() <= 9014 && tcp_checksum_holds(&piece), "{}", piece.len());
        payload.extend_from_slice(tcp_payload(&piece));
    }
    assert_eq!(payload, tcp_payload(&sent));
}
