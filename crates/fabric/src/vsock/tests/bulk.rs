//! Fairness and merging under load.

use taut_api::fabric::counters::SocketWord;
use taut_virtq::socket_header::*;

use super::rig::*;

#[test]
fn a_small_message_does_not_wait_for_bulk_of_another_connection() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (bulk, _) = rig.connect(0, 1, 5000);
    let (small, _) = rig.connect(0, 1, 5001);
    for at in 0..4 {
        rig.write(bulk, &pattern(at, 1 << 16));
    }
    rig.write(small, b"small");
    rig.settle();
    let at = rig.drivers[1].inbox.iter().position(|(header, _)| header.src_port == 5001);
    assert!(at.unwrap() <= 2, "{at:?} packets before it");
}

#[test]
fn a_small_message_goes_before_the_next_turns_of_many_bulk_streams() {
    let mut rig = rig(&[&["d"], &["d"]], 64 << 10);
    let bulk: Vec<_> = (0..10).map(|port| rig.connect(0, 1, 5000 + port).0).collect();
    let (small, _) = rig.connect(0, 1, 6000);
    rig.drivers[1].stuck = true;
    for own in bulk.iter().chain(&bulk) {
        rig.write(*own, &pattern(0, 1 << 16));
    }
    // Each stream has had a turn, as far as the receiver has buffers.
    while rig.step() {}
    rig.write(small, b"small");
    rig.drivers[1].stuck = false;
    rig.settle();
    let inbox = &rig.drivers[1].inbox;
    assert!(inbox.iter().take(64).all(|(header, _)| header.len <= 16 << 10));
    let at = inbox.iter().position(|(header, _)| header.src_port == 6000);
    assert!((64..66).contains(&at.unwrap()), "{at:?} packets before it");
}

#[test]
fn connections_to_one_guest_get_equal_shares() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let own: Vec<_> = (0..5).map(|port| rig.connect(0, 1, 5000 + port).0).collect();
    // The first connection has sent four times as much before the others begin.
    for _ in 0..4 {
        rig.write(own[0], &pattern(0, 1 << 16));
    }
    for own in &own[1..] {
        rig.write(*own, &pattern(0, 1 << 16));
    }
    while rig.drivers[1].inbox.len() < 50 {
        assert!(rig.step());
    }
    let of =
        |port| rig.drivers[1].inbox.iter().take(50).filter(|(header, _)| header.src_port == port).count();
    for port in 5000..5005 {
        assert!((8..=12).contains(&of(port)), "{port}: {} of 50", of(port));
    }
}

/// The reader counts packets as Linux does: Linux ends a connection whose receiver holds some
/// hundreds of packets, and adds tiny packets to the one before.
#[test]
fn a_flood_of_small_sends_to_a_slow_reader_becomes_few_packets() {
    for size in [1, 5, 20, 100, 300, 500] {
        let mut rig = rig(&[&["d"], &["d"]], 4096);
        let (a, mut b) = rig.connect(0, 1, 5000);
        let (mut held, mut last, mut worst) = (0, 0, 0);
        let (mut sent, mut got) = (0_usize, Vec::new());
        while sent < 100_000 {
            for _ in 0..7 {
                if rig.drivers[0].outstanding() < 60 {
                    rig.write(a, &pattern(sent, size));
                    sent += size;
                }
            }
            (0..3).for_each(|_| _ = rig.step());
            while let Some((header, bytes)) = rig.drivers[1].inbox.pop_front() {
                if header.op == CREDIT_REQUEST {
                    rig.send_control(b, CREDIT_UPDATE, 0);
                    continue;
                }
                assert_eq!(header.op, RW);
                if bytes.len() <= 128 && last + bytes.len() <= 4096 - 44 {
                    last += bytes.len();
                } else {
                    (held, last) = (held + 1, bytes.len());
                }
                worst = worst.max(held);
                got.extend(bytes);
            }
        }
        // Now the program reads everything.
        for _ in 0..10 {
            rig.now += std::time::Duration::from_millis(2);
            rig.settle();
            rig.ops(0);
            got.extend(rig.drivers[1].inbox.drain(..).flat_map(|(_, bytes)| bytes));
            b.taken = got.len() as u32;
            rig.send_control(b, CREDIT_UPDATE, 0);
        }
        assert!(got == pattern(0, sent), "{size}: {} of {sent}", got.len());
        assert!(worst < 455, "{size}: {worst} packets unread");
        assert_eq!(rig.count(1, SocketWord::Resets), 0);
    }
}
