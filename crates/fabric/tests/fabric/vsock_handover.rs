//! vsock devices when the fabric is replaced: connections survive an upgrade, devices also survive
//! a kill.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taut_api::fabric::PortId;
use taut_api::fabric::config::SocketConfig;
use taut_api::fabric::counters::SocketWord;
use taut_api::link::Link;
use taut_virtq::socket_header::RST;

use super::fabric::{Fabric, socket};
use super::vsock::{exchange, socket_guests};
use super::vsock_guest::{End, SocketGuest, connect};

fn both() -> Vec<SocketConfig> {
    vec![socket(0, &["web"]), socket(1, &["web"])]
}

fn resume_both(fabric: &mut Fabric) {
    fabric.configure_sockets(both());
    fabric.resume();
    fabric.until_link(PortId(0), Link::Up);
    fabric.until_link(PortId(1), Link::Up);
}

fn upgrade(fabric: Fabric) -> Fabric {
    let mut next = fabric.upgrade_to(|next| next.configure_sockets(both()));
    next.until_link(PortId(0), Link::Up);
    next.until_link(PortId(1), Link::Up);
    next
}

#[test]
fn a_killed_fabric_resets_every_connection_and_new_ones_work() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web"], &["web"]]);
    for round in 0..3 {
        let (mut at_a, mut at_b) = connect(&mut a, &mut b, 1000);
        exchange([&mut a, &mut b], [&mut at_a, &mut at_b], round);
        fabric = fabric.kill_and_replace();
        resume_both(&mut fabric);
        assert_eq!(a.next(&at_a).op, RST);
        assert_eq!(b.next(&at_b).op, RST);
        assert_eq!(fabric.socket_word(PortId(0), SocketWord::Connections), 0);
    }
    assert_eq!(fabric.socket_word(PortId(0), SocketWord::Resets), 3);
}

#[test]
fn a_fabric_killed_under_load_delivers_no_byte_twice_before_the_reset() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web"], &["web"]]);
    for round in 0..5_u8 {
        let (at_a, at_b) = connect(&mut a, &mut b, 1000 + u32::from(round));
        let bytes = |from: usize, len: usize| -> Vec<u8> {
            (from..from + len).map(|at| (at >> 8) as u8 ^ at as u8 ^ round).collect()
        };
        let received = |fabric: &Fabric| fabric.socket_word(PortId(1), SocketWord::RxBytes);
        let before = received(&fabric);
        fabric = std::thread::scope(|scope| {
            let a = &mut a;
            let b = &mut b;
            let sender = scope.spawn(move || a.write_until_reset(at_a, bytes));
            let receiver = scope.spawn(move || {
                let got = b.read_until_reset(at_b);
                assert!(got == bytes(0, got.len()), "a byte differs");
                got.len()
            });
            while received(&fabric) < before + 300_000 {
                std::thread::yield_now();
            }
            let mut next = fabric.kill_and_replace();
            resume_both(&mut next);
            let (sent, got) = (sender.join().unwrap(), receiver.join().unwrap());
            assert!(got > 0 && got <= sent, "{got} of {sent} bytes");
            next
        });
    }
    let (mut at_a, mut at_b) = connect(&mut a, &mut b, 2000);
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 1);
}

/// Sends, reads and checks a stream until `events` are over. Then the sender ends it.
fn byte_exact(
    fabric: Fabric,
    guests: [SocketGuest; 2],
    ends: (End, End),
    events: impl FnOnce(Fabric) -> Fabric,
) {
    let [mut a, mut b] = guests;
    let (mut at_a, mut at_b) = ends;
    let bytes = |from: u32, len: usize| -> Vec<u8> {
        (from..).take(len).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    };
    let over = Arc::new(AtomicBool::new(false));
    let sender_over = Arc::clone(&over);
    let sender = std::thread::spawn(move || {
        let mut sent = 0_u32;
        // The head of each chunk tells the receiver whether it is the last one.
        loop {
            let last = sender_over.load(Ordering::Relaxed);
            let len = 1 + sent as usize % 20_000;
            a.write(&mut at_a, &[&[u8::from(last)][..], &(len as u32).to_le_bytes()].concat());
            a.write(&mut at_a, &bytes(sent, len));
            sent += len as u32;
            if last {
                a.close(&at_a);
                return (a, sent);
            }
        }
    });
    let receiver = std::thread::spawn(move || {
        let mut got = 0_u32;
        let mut buffered = Vec::new();
        loop {
            let mut take = |b: &mut SocketGuest, len: usize| {
                while buffered.len() < len {
                    buffered.extend(b.read_some(&mut at_b));
                }
                buffered.drain(..len).collect::<Vec<u8>>()
            };
            let head = take(&mut b, 5);
            let len = u32::from_le_bytes(head[1..].try_into().unwrap());
            assert!(len == 1 + got % 20_000, "a chunk of {len} bytes behind {got}");
            let chunk = take(&mut b, len as usize);
            assert!(chunk == bytes(got, len as usize), "the chunk behind {got} bytes differs");
            got += len;
            if head[0] == 1 {
                b.closed(&at_b);
                return (b, got);
            }
        }
    });
    let _fabric = events(fabric);
    over.store(true, Ordering::Relaxed);
    let ((_a, sent), (_b, got)) = (sender.join().unwrap(), receiver.join().unwrap());
    assert_eq!(got, sent);
    assert!(sent > 0);
}

#[test]
fn streams_lose_and_double_no_byte_in_upgrades() {
    let mut fabric = Fabric::start();
    let mut guests = socket_guests(&mut fabric, [&["web"], &["web"]]);
    let [a, b] = &mut guests;
    let ends = connect(a, b, 1000);
    byte_exact(fabric, guests, ends, |mut fabric| {
        for _ in 0..5 {
            fabric = upgrade(fabric);
            std::thread::sleep(Duration::from_millis(10));
        }
        fabric
    });
}

#[test]
fn an_idle_connection_and_an_unanswered_request_survive_an_upgrade() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web"], &["web"]]);
    let (mut at_a, mut at_b) = connect(&mut a, &mut b, 1000);
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 1);
    let asked = a.request(2000, (b.cid, 5000));
    let fabric = upgrade(fabric);
    // The request from before the upgrade is answered after it.
    let accepted = b.accept();
    let (header, _) = a.receive();
    assert!(asked.is_for(&header), "{header:?}");
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 2);
    assert_eq!(fabric.socket_word(PortId(0), SocketWord::Connections), 2);
    b.tell(&accepted, RST);
    assert_eq!(a.next(&asked).op, RST);
    assert_eq!(fabric.socket_word(PortId(1), SocketWord::Resets), 0);
}

#[test]
fn a_standby_fabric_that_ends_before_its_takeover_changes_nothing() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = socket_guests(&mut fabric, [&["web"], &["web"]]);
    let (mut at_a, mut at_b) = connect(&mut a, &mut b, 1000);
    let mut next = fabric.beside();
    next.stand_by_for(&fabric, |next| next.configure_sockets(both()));
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 1);
    assert!(next.quit().success());
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 2);
    // Another standby fabric can still take over.
    let _fabric = upgrade(fabric);
    exchange([&mut a, &mut b], [&mut at_a, &mut at_b], 3);
}
