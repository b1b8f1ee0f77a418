//! Shaped ports: waiting, loss and live changes. The accuracy of rates is measured, not tested
//! here.

use taut_api::Bytes;
use taut_api::fabric::config::PortConfig;
use taut_api::fabric::{DropReason, PortId};
use taut_api::shaping::{Shape, Shaping};
use taut_api::units::BitRate;
use taut_virtq::NetHeader;

use super::fabric::{Fabric, mac, vnic};
use super::frames::{frame, tso};
use super::guest::{Guest, LINUX, Model, NO_OFFLOADS};
use super::traffic::guests;

/// 1 kbit/s: a frame delays the next one by 8 ms for each of its bytes.
const SLOWEST: Shape = Shape { average: BitRate(1000), peak: None, burst: Bytes(64) };

/// Configures three ports and shapes the one with this number.
fn shaped(id: u16, shaping: Shaping) -> Vec<PortConfig> {
    let mut ports: Vec<_> = (0..3).map(|id| vnic(id, 1)).collect();
    ports[usize::from(id)].shaping = shaping;
    ports
}

fn expect(guest: &mut Guest, marks: impl IntoIterator<Item = u8>, from: u16, to: u16, len: usize) {
    for mark in marks {
        assert_eq!(guest.receive().1, frame(mac(to), mac(from), mark, len), "frame {mark}");
    }
}

#[test]
fn frames_of_a_shaped_sender_wait_in_its_ring_and_none_is_lost() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    fabric.configure(shaped(0, Shaping { to_switch: Some(SLOWEST), to_guest: None }));
    for mark in 0..100 {
        a.send(&frame(mac(1), mac(0), mark, 1500));
    }
    expect(&mut b, [0], 0, 1, 1500);
    // Other ports are not delayed, in either direction.
    for mark in 200..220 {
        c.send(&frame(mac(1), mac(2), mark, 1500));
        b.send(&frame(mac(0), mac(1), mark, 1500));
    }
    expect(&mut b, 200..220, 2, 1, 1500);
    expect(&mut a, 200..220, 1, 0, 1500);
    // At the old rate, the next frame would come after twelve seconds, and the last after twenty
    // minutes.
    let faster = Shape { average: BitRate(1_000_000_000), ..SLOWEST };
    fabric.configure(shaped(0, Shaping { to_switch: Some(faster), to_guest: None }));
    expect(&mut b, 1..100, 0, 1, 1500);
    a.drain();
    let counters = fabric.counters(PortId(0));
    assert_eq!((counters.tx_frames, counters.tx_drops), (100, vec![]));
    assert_eq!(fabric.counters(PortId(1)).rx_drops, []);
}

#[test]
fn frames_to_a_shaped_receiver_wait_in_a_bounded_queue_and_arrive_in_order() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    fabric.configure(shaped(1, Shaping { to_switch: None, to_guest: Some(SLOWEST) }));
    // One frame passes, 500 wait, and the others are lost.
    for mark in 0..600_u16 {
        a.send(&frame(mac(1), mac(0), mark as u8, 100));
    }
    a.drain();
    assert_eq!(fabric.counters(PortId(1)).rx_drops, [(DropReason::ShaperFull, 99)]);
    assert_eq!(fabric.counters(PortId(1)).rx_frames, 1);
    a.send(&frame(mac(2), mac(0), 7, 100));
    expect(&mut c, [7], 0, 2, 100);
    b.send(&frame(mac(0), mac(1), 8, 100));
    expect(&mut a, [8], 1, 0, 100);
    fabric.configure(shaped(1, Shaping::default()));
    expect(&mut b, (0..501_u16).map(|mark| mark as u8), 0, 1, 100);
    a.send(&frame(mac(1), mac(0), 9, 1500));
    expect(&mut b, [9], 0, 1, 1500);
    a.drain();
    let counters = fabric.counters(PortId(1));
    assert_eq!((counters.rx_frames, counters.rx_bytes), (502, 501 * 100 + 1500));
}

#[test]
fn whole_offload_frames_and_pieces_of_them_are_paced() {
    let mut fabric = Fabric::start();
    let steady = Shape { average: BitRate(100_000_000), peak: None, burst: Bytes(1) };
    for (features, pieces) in [(LINUX, 1), (NO_OFFLOADS, 44)] {
        let both = Shaping { to_switch: Some(steady), to_guest: Some(steady) };
        fabric.configure(shaped(1, both));
        let start = |fabric: &mut Fabric, id, features| {
            let guest = Guest::start(fabric.connect(PortId(id)), Model { features, ..Model::default() });
            fabric.until_link(PortId(id), taut_api::link::Link::Up);
            guest
        };
        let mut a = start(&mut fabric, 0, LINUX);
        let mut b = start(&mut fabric, 1, features);
        let payload = 1460 * 44;
        let (header, sent) = tso(mac(1), mac(0), payload, 1460);
        for _ in 0..10 {
            a.send_with(&header, &sent);
        }
        let mut got = 0;
        for _ in 0..10 * pieces {
            got += b.receive().1.len() - 54;
        }
        assert_eq!(got, 10 * payload);
        b.send_with(&NetHeader::default(), &frame(mac(0), mac(1), 3, 60_000));
        expect(&mut a, [3], 1, 0, 60_000);
        assert_eq!(fabric.counters(PortId(1)).rx_drops, []);
    }
}

#[test]
fn frames_that_wait_for_a_guest_that_leaves_are_counted() {
    let mut fabric = Fabric::start();
    let [mut a, b, _c] = guests(&mut fabric, Model { queue_size: 64, ..Model::default() });
    fabric.configure(shaped(1, Shaping { to_switch: None, to_guest: Some(SLOWEST) }));
    for mark in 0..101 {
        a.send(&frame(mac(1), mac(0), mark, 100));
    }
    a.drain();
    drop(b);
    fabric.until_link(PortId(1), taut_api::link::Link::Down);
    // Its ring took as many frames as it had room for, at any rate.
    let counters = fabric.counters(PortId(1));
    assert_eq!(counters.rx_frames, 64);
    assert_eq!(counters.rx_drops, [(DropReason::PortDown, 37)]);
}
