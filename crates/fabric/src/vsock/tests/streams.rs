//! Connections between two guests.

use taut_api::fabric::counters::SocketWord;
use taut_virtq::socket_header::*;

use super::rig::*;

#[test]
fn bytes_go_both_ways_for_all_buffer_sizes() {
    for buffer in [1, 100, 4096 - 44, 64 << 10] {
        let mut rig = rig(&[&["d"], &["d"]], buffer);
        let (mut a, mut b) = rig.connect(0, 1, 5000);
        for len in [1, 43, 3000, 4096, 32_000, 65_536] {
            let (there, back) = (pattern(len, len), pattern(7, len));
            rig.write(a, &there);
            rig.write(b, &back);
            rig.settle();
            assert!(
                rig.read(&mut b) == there && rig.read(&mut a) == back,
                "{len} bytes, buffers of {buffer}"
            );
        }
        assert_eq!(rig.drivers[0].outstanding() + rig.drivers[1].outstanding(), 0);
        assert_eq!(rig.count(0, SocketWord::TxBytes), rig.count(1, SocketWord::RxBytes));
    }
}

#[test]
fn small_payloads_of_one_connection_become_one_packet() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, b) = rig.connect(0, 1, 5000);
    for at in 0..40 {
        rig.write(a, &pattern(at * 10, 10));
    }
    rig.settle();
    let (header, bytes) = rig.next(1);
    assert_eq!((header.op, header.len), (RW, 400));
    assert!(bytes == pattern(0, 400) && rig.drivers[1].inbox.is_empty());
    assert_eq!(b.taken, 0);
}

#[test]
fn seqpacket_messages_keep_their_boundaries() {
    let mut rig = rig(&[&["d"], &["d"]], 1000);
    let (a, b) = rig.ends(0, 1, 5000);
    let of = |header: SocketHeader| SocketHeader { kind: SEQPACKET, ..header };
    let request = of(rig.header(a, REQUEST));
    assert!(rig.drivers[0].send(request, &[]));
    rig.settle();
    let response = of(rig.header(b, RESPONSE));
    assert!(rig.drivers[1].send(response, &[]));
    rig.settle();
    assert_eq!((rig.ops(1), rig.ops(0)), (vec![REQUEST], vec![RESPONSE]));
    for (len, flags) in [(10, SEQ_EOM), (2500, SEQ_EOM | SEQ_EOR), (0, SEQ_EOM), (5, 0), (6, SEQ_EOM)] {
        let header = SocketHeader { flags, ..of(rig.header(a, RW)) };
        assert!(rig.drivers[0].send(header, &pattern(0, len)));
    }
    rig.settle();
    let got: Vec<_> =
        rig.drivers[1].inbox.drain(..).map(|(header, bytes)| (bytes.len(), header.flags)).collect();
    let both = SEQ_EOM | SEQ_EOR;
    assert_eq!(got, [(10, SEQ_EOM), (1000, 0), (1000, 0), (500, both), (0, SEQ_EOM), (5, 0), (6, SEQ_EOM)]);
}

#[test]
fn a_shutdown_follows_the_payload_and_the_other_direction_goes_on() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (mut a, mut b) = rig.connect(0, 1, 5000);
    rig.write(a, &pattern(0, 20_000));
    rig.send_control(a, SHUTDOWN, SHUTDOWN_SEND);
    rig.settle();
    let (last, _) = rig.drivers[1].inbox.pop_back().unwrap();
    assert_eq!((last.op, last.flags), (SHUTDOWN, SHUTDOWN_SEND));
    assert!(rig.read(&mut b) == pattern(0, 20_000));
    rig.write(b, b"still here");
    rig.settle();
    assert_eq!(rig.read(&mut a), b"still here");
    rig.send_control(b, SHUTDOWN, SHUTDOWN_SEND | SHUTDOWN_RCV);
    rig.settle();
    assert_eq!(rig.ops(0), [SHUTDOWN]);
    rig.send_control(a, RST, 0);
    rig.settle();
    assert_eq!(rig.ops(1), [RST]);
    assert_eq!((rig.count(0, SocketWord::Connections), rig.count(0, SocketWord::Opened)), (0, 1));
    // The same ports can be used again.
    rig.connect(0, 1, 5000);
}

#[test]
fn a_reset_follows_the_payload() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, mut b) = rig.connect(0, 1, 5000);
    rig.write(a, &pattern(0, 9000));
    rig.send_control(a, RST, 0);
    rig.settle();
    assert_eq!(rig.drivers[1].inbox.pop_back().unwrap().0.op, RST);
    assert!(rig.read(&mut b) == pattern(0, 9000));
    assert_eq!(rig.count(1, SocketWord::Connections), 0);
}

#[test]
fn credit_is_passed_on_and_asked_for() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, mut b) = rig.connect(0, 1, 5000);
    rig.send_control(a, CREDIT_REQUEST, 0);
    rig.settle();
    assert_eq!(rig.ops(1), [CREDIT_REQUEST]);
    rig.write(a, &[1; 77]);
    rig.settle();
    assert_eq!(rig.read(&mut b).len(), 77);
    rig.send_control(b, CREDIT_UPDATE, 0);
    rig.send_control(b, CREDIT_UPDATE, 0);
    rig.settle();
    let (header, _) = rig.next(0);
    assert_eq!((header.op, header.buf_alloc, header.fwd_cnt), (CREDIT_UPDATE, 16 << 10, 77));
    assert!(rig.drivers[0].inbox.is_empty(), "two updates are one");
}

#[test]
fn no_receiver_gets_more_than_its_credit() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, mut b) = rig.connect(0, 1, 5000);
    for at in 0..6 {
        rig.write(a, &pattern(at << 16, 1 << 16));
    }
    rig.settle();
    assert!(rig.read(&mut b) == pattern(0, ALLOC as usize), "the guest sent more than its credit");
    assert_eq!(rig.drivers[0].outstanding(), 2);
    rig.send_control(b, CREDIT_UPDATE, 0);
    rig.settle();
    assert!(rig.read(&mut b) == pattern(ALLOC as usize, 2 << 16));
    assert_eq!(rig.drivers[0].outstanding(), 0);
}

#[test]
fn a_packet_that_the_state_does_not_allow_resets_both_sides() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.send_control(a, RESPONSE, 0);
    rig.settle();
    assert_eq!((rig.ops(0), rig.ops(1)), (vec![RST], vec![RST]));
    // Payload before the response.
    let (a, _) = rig.ends(0, 1, 5001);
    rig.send_control(a, REQUEST, 0);
    rig.settle();
    rig.write(a, b"too soon");
    rig.settle();
    assert_eq!((rig.ops(0), rig.ops(1)), (vec![RST], vec![REQUEST, RST]));
    assert_eq!((rig.count(0, SocketWord::Resets), rig.count(0, SocketWord::Connections)), (2, 0));
    assert_eq!(rig.drivers[0].outstanding(), 0);
}
