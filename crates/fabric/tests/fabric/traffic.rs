//! Receivers of frames.

use std::sync::Arc;

use taut_api::MacAddr;
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{DropReason, PortId};
use taut_api::link::Link;
use taut_virtq::features::RING_PACKED;
use taut_virtq::header::NetHeader;

use super::fabric::{Fabric, mac, vnic};
use super::frames::frame;
use super::guest::{FORMATS, Guest, LINUX, Model, NO_OFFLOADS, Window};

/// Starts guests on ports 0, 1, … of one segment.
pub(crate) fn guests<const N: usize>(fabric: &mut Fabric, model: Model) -> [Guest; N] {
    fabric.configure((0..N as u16).map(|id| vnic(id, 1)).collect());
    std::array::from_fn(|id| {
        let guest = Guest::start(fabric.connect(PortId(id as u16)), model);
        fabric.until_link(PortId(id as u16), Link::Up);
        guest
    })
}

#[test]
fn frames_of_all_lengths_pass_both_ways_and_are_counted() {
    FORMATS.into_iter().for_each(frames_of_all_lengths_pass);
}

fn frames_of_all_lengths_pass(format: u64) {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model { features: LINUX | format, ..Model::default() });
    let lengths = [14, 60, 64, 65, 1514, 1600, 9014, 65_549];
    for (index, &len) in lengths.iter().enumerate() {
        let sent = frame(mac(1), mac(0), index as u8, len);
        a.send(&sent);
        let (header, got) = b.receive();
        assert_eq!(got, sent, "{len}");
        assert_eq!(NetHeader { num_buffers: 0, ..header }, NetHeader::default());
        let sent = frame(mac(0), mac(1), index as u8, len);
        b.send(&sent);
        assert_eq!(a.receive().1, sent, "{len}");
    }
    a.drain();
    b.drain();
    let bytes = lengths.iter().sum::<usize>() as u64;
    for port in [0, 1] {
        let counters = fabric.counters(PortId(port));
        assert_eq!((counters.tx_frames, counters.tx_bytes), (8, bytes));
        assert_eq!((counters.rx_frames, counters.rx_bytes), (8, bytes));
        assert!(counters.kicks > 0 && counters.interrupts > 0);
        assert!(counters.tx_drops.is_empty() && counters.rx_drops.is_empty());
    }
}

#[test]
fn a_stopped_ring_returns_its_position_and_resumes_there() {
    for format in FORMATS {
        let mut fabric = Fabric::start();
        let model = Model { features: LINUX | format, queue_size: 8, ..Model::default() };
        let [mut a, mut b] = guests(&mut fabric, model);
        for round in 0..5 {
            for mark in 0..7 {
                let sent = frame(mac(1), mac(0), round * 8 + mark, 500);
                a.send(&sent);
                assert_eq!(b.receive().1, sent);
            }
            a.drain();
            let base = a.stop_ring(1);
            let sent = 7 * (u32::from(round) + 1);
            if format & RING_PACKED == 0 {
                assert_eq!(base, sent);
            } else {
                let first_turn = if (sent / 8).is_multiple_of(2) { 1 << 15 } else { 0 };
                assert_eq!(base, ((sent % 8) | first_turn) * 0x1_0001);
            }
            a.set_up_ring(1, base as u16);
        }
    }
}

#[test]
fn a_driver_without_optional_features_is_served() {
    let mut fabric = Fabric::start();
    let model = Model { features: NO_OFFLOADS, ..Model::default() };
    let [mut a, mut b] = guests(&mut fabric, model);
    for mark in 0..200 {
        let sent = frame(mac(1), mac(0), mark, 1514);
        a.send(&sent);
        assert_eq!(b.receive().1, sent);
    }
    a.send(&frame(mac(1), mac(0), 1, 1601));
    a.send(&frame(mac(1), mac(0), 2, 60));
    assert_eq!(b.receive().1, frame(mac(1), mac(0), 2, 60));
    assert_eq!(fabric.counters(PortId(1)).rx_drops, [(DropReason::BufferTooSmall, 1)]);
}

#[test]
fn many_frames_arrive_in_order_and_none_is_lost() {
    FORMATS.into_iter().for_each(many_frames_arrive);
}

fn many_frames_arrive(format: u64) {
    let mut fabric = Fabric::start();
    let queue_size = if format & RING_PACKED == 0 { 64 } else { 61 };
    let model = Model { features: LINUX | format, queue_size, ..Model::default() };
    let [mut a, mut b] = guests(&mut fabric, model);
    let count = 20_000_u32;
    let window = Window::new(60);
    let sender_window = Arc::clone(&window);
    let sender = std::thread::spawn(move || {
        for number in 0..count {
            sender_window.wait_for(number);
            let mut sent = frame(mac(1), mac(0), 0, 64 + number as usize % 1000);
            sent[20..24].copy_from_slice(&number.to_be_bytes());
            a.send(&sent);
        }
        a.drain();
        a
    });
    for number in 0..count {
        let (_, got) = b.receive();
        assert_eq!(got[20..24], number.to_be_bytes());
        assert_eq!(got.len(), 64 + number as usize % 1000);
        window.advance(number + 1);
    }
    sender.join().unwrap();
    assert_eq!(fabric.counters(PortId(1)).rx_frames, u64::from(count));
}

#[test]
fn known_unicast_reaches_only_its_owner_and_broadcast_reaches_all_others() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    let marker = frame(MacAddr::BROADCAST, mac(0), 9, 100);
    a.send(&frame(mac(1), mac(0), 1, 60));
    a.send(&frame(mac(77), mac(0), 2, 60));
    a.send(&frame(mac(0), mac(0), 3, 60));
    a.send(&marker);
    assert_eq!(b.receive().1, frame(mac(1), mac(0), 1, 60));
    assert_eq!(b.receive().1, marker);
    assert_eq!(c.receive().1, marker, "c saw a frame for others");
    // The sender got no copy: the next frame that it receives is this one.
    c.send(&frame(mac(0), mac(2), 4, 60));
    assert_eq!(a.receive().1, frame(mac(0), mac(2), 4, 60));
    a.drain();
    assert_eq!(fabric.counters(PortId(0)).tx_drops, [(DropReason::UnknownUnicast, 2)]);
    assert_eq!(fabric.counters(PortId(2)).rx_multicast, 1);
}

#[test]
fn frames_do_not_leave_their_segment() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model::default());
    let mut other = vnic(1, 2);
    other.mac = mac(1);
    fabric.configure(vec![vnic(0, 1), other, vnic(2, 2)]);
    let mut c = Guest::start(fabric.connect(PortId(2)), Model::default());
    a.send(&frame(mac(1), mac(0), 1, 60));
    a.send(&frame(MacAddr::BROADCAST, mac(0), 2, 60));
    a.drain();
    c.send(&frame(MacAddr::BROADCAST, mac(2), 3, 60));
    assert_eq!(b.receive().1, frame(MacAddr::BROADCAST, mac(2), 3, 60));
    assert_eq!(fabric.counters(PortId(0)).tx_drops, [(DropReason::UnknownUnicast, 1)]);
}

#[test]
fn forged_and_tagged_frames_and_runts_are_dropped_with_their_reasons() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model::default());
    a.send(&frame(mac(1), mac(5), 1, 60));
    let mut tagged = frame(mac(1), mac(0), 2, 60);
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    a.send(&tagged);
    a.send(&[1; 13]);
    let bad = NetHeader { gso_type: 77, ..NetHeader::default() };
    a.send_with(&bad, &frame(mac(1), mac(0), 3, 60));
    a.send(&frame(mac(1), mac(0), 4, 60));
    assert_eq!(b.receive().1, frame(mac(1), mac(0), 4, 60));
    a.drain();
    let drops = [
        (DropReason::ForgedTransmit, 1),
        (DropReason::Runt, 1),
        (DropReason::BadHeader, 1),
        (DropReason::VlanTag, 1),
    ];
    assert_eq!(fabric.counters(PortId(0)).tx_drops, drops);
}

#[test]
fn a_port_group_may_permit_forged_transmits_and_promiscuous_mode() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    let mut ports: Vec<_> = (0..3).map(|id| vnic(id, 1)).collect();
    ports[0].security.forged_transmits = true;
    ports[2].security.promiscuous = true;
    fabric.configure(ports);
    let forged = frame(mac(1), mac(5), 1, 60);
    let unknown = frame(mac(77), mac(0), 2, 60);
    a.send(&forged);
    a.send(&unknown);
    assert_eq!(b.receive().1, forged);
    assert_eq!(c.receive().1, forged);
    assert_eq!(c.receive().1, unknown);
}

#[test]
fn a_guest_that_reads_nothing_loses_its_frames_and_delays_others_only_briefly() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, _deaf] = guests(&mut fabric, Model { queue_size: 16, ..Model::default() });
    for mark in 0..100 {
        a.send(&frame(mac(2), mac(0), mark, 60));
        a.send(&frame(mac(1), mac(0), mark, 60));
        assert_eq!(b.receive().1, frame(mac(1), mac(0), mark, 60));
    }
    a.drain();
    let deaf = fabric.counters(PortId(2));
    assert_eq!(deaf.rx_frames, 16);
    assert_eq!(deaf.rx_drops, [(DropReason::RingFull, 84)]);
    assert_eq!(deaf.rx_waits, 1, "the sender waited once, not with every frame");
}

#[test]
fn frames_for_a_port_without_a_guest_are_counted_there() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1), vnic(1, 1)]);
    let mut a = Guest::start(fabric.connect(PortId(0)), Model::default());
    a.send(&frame(mac(1), mac(0), 1, 60));
    a.drain();
    assert_eq!(fabric.counters(PortId(1)).rx_drops, [(DropReason::PortDown, 1)]);
}

#[test]
fn a_listening_port_serves_one_front_end_after_another() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1), vnic(1, 1)]);
    let mut a = Guest::start(fabric.connect(PortId(0)), Model::default());
    let address = SocketAddr::from_abstract_name(format!("taut-fabric-test/port/{}", fabric.pid())).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    fabric.attach(PortId(1), Attachment::Listening, &[listener.into()]);
    for mark in 0..3 {
        let mut b = Guest::start(UnixStream::connect_addr(&address).unwrap(), Model::default());
        a.send(&frame(mac(1), mac(0), mark, 60));
        assert_eq!(b.receive().1, frame(mac(1), mac(0), mark, 60));
        fabric.until_link(PortId(1), Link::Up);
        // A tautd that was started anew gets the listening socket before the session.
        fabric.reconnect();
        fabric.until_link(PortId(1), Link::Up);
        assert_eq!(fabric.attached, [(PortId(1), Attachment::Listening)]);
        assert!(fabric.sessions.contains_key(&PortId(1)));
        drop(b);
        let state = fabric.until_link(PortId(1), Link::Down);
        assert!(state.attached);
        assert_eq!(state.reason.as_deref(), Some("the front end closed the connection"));
    }
}
