//! Moderated guests, which wait for interrupts only and kick only when asked to.

use taut_api::Coalescing;
use taut_api::fabric::PortId;
use taut_api::link::Link;

use super::fabric::{Fabric, mac, vnic};
use super::frames::frame;
use super::guest::{Guest, LINUX, Model, NO_OFFLOADS};

const SCHEMES: [Coalescing; 6] = [
    Coalescing::Disabled,
    Coalescing::Static { packets: 1 },
    Coalescing::Static { packets: 64 },
    Coalescing::Rbc { rate: 100 },
    Coalescing::Rbc { rate: 4000 },
    Coalescing::Adapt,
];

fn moderate(fabric: &mut Fabric, coalescing: Coalescing) {
    let port = |id| taut_api::fabric::config::PortConfig { coalescing, ..vnic(id, 1) };
    fabric.configure(vec![port(0), port(1)]);
}

fn two_guests(fabric: &mut Fabric, features: u64) -> [Guest; 2] {
    moderate(fabric, Coalescing::Disabled);
    std::array::from_fn(|id| {
        let port = PortId(id as u16);
        let guest = Guest::start(fabric.connect(port), Model { features, ..Model::default() });
        fabric.until_link(port, Link::Up);
        guest
    })
}

/// Exchanges a request and a response, then several frames in a row: no scheme may hold a frame
/// back for ever.
fn talk(a: &mut Guest, b: &mut Guest) {
    for mark in 0..10 {
        let (question, answer) = (frame(mac(1), mac(0), mark, 60), frame(mac(0), mac(1), mark, 1514));
        a.send(&question);
        assert_eq!(b.receive().1, question);
        b.send(&answer);
        assert_eq!(a.receive().1, answer);
    }
    let row: Vec<_> = (0..100).map(|mark| frame(mac(1), mac(0), mark, 64)).collect();
    for frame in &row {
        a.send(frame);
    }
    for frame in &row {
        assert_eq!(b.receive().1, *frame);
    }
    a.drain();
    b.drain();
}

#[test]
fn every_scheme_delivers_all_frames_and_can_be_changed_live() {
    for features in [LINUX, NO_OFFLOADS] {
        let mut fabric = Fabric::start();
        let [mut a, mut b] = two_guests(&mut fabric, features);
        for scheme in SCHEMES.into_iter().chain([Coalescing::Disabled]) {
            moderate(&mut fabric, scheme);
            talk(&mut a, &mut b);
        }
        for port in [0, 1] {
            let counters = fabric.counters(PortId(port));
            assert!(counters.rx_drops.is_empty() && counters.tx_drops.is_empty());
        }
    }
}

#[test]
fn static_saves_interrupts_and_kicks() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = two_guests(&mut fabric, LINUX);
    moderate(&mut fabric, Coalescing::Static { packets: 64 });
    let frames = 2000;
    let sent = frame(mac(1), mac(0), 1, 64);
    for number in 0..frames {
        a.send(&sent);
        // Receive before the ring is full, so that nothing is lost.
        if number % 100 == 99 {
            for _ in 0..100 {
                assert_eq!(b.receive().1, sent);
            }
        }
    }
    a.drain();
    let (sender, receiver) = (fabric.counters(PortId(0)), fabric.counters(PortId(1)));
    assert_eq!(receiver.rx_frames, frames);
    assert!(receiver.interrupts < frames / 4, "{} interrupts", receiver.interrupts);
    assert!(sender.kicks < frames / 4, "{} kicks", sender.kicks);
}

#[test]
fn an_interrupt_held_back_by_a_killed_fabric_is_not_lost() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = two_guests(&mut fabric, LINUX);
    moderate(&mut fabric, Coalescing::Static { packets: 64 });
    for mark in 0..10 {
        let sent = frame(mac(1), mac(0), mark, 64);
        a.send(&sent);
        // The frame is delivered, and its interrupt most likely still held back.
        a.drain();
        fabric = fabric.kill_and_replace();
        moderate(&mut fabric, Coalescing::Static { packets: 64 });
        fabric.resume();
        assert_eq!(b.receive().1, sent);
    }
}
