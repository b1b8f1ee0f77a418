//! Deferred credit updates and interrupts.

use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_virtq::socket_header::{CREDIT_REQUEST, CREDIT_UPDATE};

use super::rig::*;

const SOON: Duration = Duration::from_millis(1);

#[test]
fn a_credit_update_that_is_not_needed_comes_later() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, mut b) = rig.connect(0, 1, 5000);
    rig.write(a, &pattern(0, 1000));
    rig.settle();
    rig.read(&mut b);
    rig.send_control(b, CREDIT_UPDATE, 0);
    rig.settle();
    assert!(rig.ops(0).is_empty());
    rig.now += SOON;
    rig.settle();
    assert_eq!(rig.next(0).0.fwd_cnt, 1000);
    assert!(rig.ops(0).is_empty());
}

#[test]
fn a_credit_update_that_is_needed_or_asked_for_comes_at_once() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, mut b) = rig.connect(0, 1, 5000);
    rig.write(a, &pattern(0, 1000));
    rig.settle();
    rig.read(&mut b);
    rig.send_control(b, CREDIT_UPDATE, 0);
    rig.settle();
    assert!(rig.ops(0).is_empty());
    // As far as the sender knows, half of the buffer is used up now.
    for at in 0..2 {
        rig.write(a, &pattern(1000 + (at << 16), 1 << 16));
    }
    rig.settle();
    assert_eq!(rig.next(0).0.fwd_cnt, 1000);
    rig.read(&mut b);

    rig.send_control(a, CREDIT_REQUEST, 0);
    rig.settle();
    assert_eq!(rig.ops(1), [CREDIT_REQUEST]);
    rig.send_control(b, CREDIT_UPDATE, 0);
    rig.settle();
    assert_eq!(rig.next(0).0.fwd_cnt, 1000 + (2 << 16));

    // A larger buffer is no reason to promise more than the receiver was seen to take.
    let header =
        taut_virtq::socket_header::SocketHeader { buf_alloc: 2 * ALLOC, ..rig.header(b, CREDIT_UPDATE) };
    assert!(rig.drivers[1].send(header, &[]));
    rig.settle();
    assert!(rig.ops(0).is_empty());
    rig.now += SOON;
    rig.settle();
    assert_eq!(rig.next(0).0.buf_alloc, 128 << 10);
}

#[test]
fn a_guest_is_interrupted_for_returned_packets_later_or_when_its_ring_fills() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, mut b) = rig.connect(0, 1, 5000);
    let calls = |rig: &Rig| rig.count(0, SocketWord::Interrupts);
    rig.arm_returns(0);
    let before = calls(&rig);
    rig.write(a, b"x");
    rig.settle();
    assert_eq!(calls(&rig), before);
    rig.now += SOON;
    rig.settle();
    assert_eq!(calls(&rig), before + 1);
    rig.read(&mut b);

    // Its ring has 64 entries.
    rig.arm_returns(0);
    for count in 1..=32 {
        let told = calls(&rig) > before + 1;
        assert!(!told, "after {count}");
        rig.write_only(a, b"y");
        rig.settle();
        rig.read(&mut b);
    }
    assert_eq!(calls(&rig), before + 2);
}
