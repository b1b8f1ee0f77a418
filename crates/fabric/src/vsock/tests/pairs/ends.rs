//! How attached ends end: by a close, a shutdown, a reset, or because their program is gone.

use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::{End, Word};
use taut_virtq::socket_header::*;

use super::super::rig::*;
use super::peers::{Exchange, Peer, connect, connect_to_host, stream};
use super::program::{Program, ask, open_control, ops_for, request_for};
use super::*;

const CLOSE: u32 = SHUTDOWN_SEND | SHUTDOWN_RCV;

/// What a program is told of the end of its stream, once it has read everything.
fn end(program: &Program) -> End {
    let look = program.ends.consumer.look().unwrap();
    assert_eq!(look.bytes, 0, "not everything was read");
    look.end
}

/// Checks that a guest was told of a close, and has it answer by a reset as Linux does.
fn answer_close(rig: &mut Rig, own: Own, mut ops: Vec<u16>) {
    ops.dedup();
    assert_eq!(ops, [SHUTDOWN]);
    rig.send_control(own, RST, 0);
    rest(rig);
}

/// Opens a connection between guests 0 and 1 of which both ends are attached.
fn attached(rig: &mut Rig) -> (Peer, Peer) {
    let (a, b) = connect(rig, 0, 1, 5000);
    (a.attach(rig), b.attach(rig))
}

/// Reads until nothing more comes, with time passing.
fn read_all(rig: &mut Rig, peer: &mut Peer) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..40 {
        rig.now += Duration::from_micros(100);
        rig.settle();
        all.extend(peer.read(rig, 1 << 20));
    }
    all
}

#[test]
fn what_is_left_in_the_ring_of_a_closed_end_arrives_before_its_end() {
    for kind in 0..3 {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) =
            if kind == 2 { connect_to_host(&mut rig, 5000) } else { connect(&mut rig, 0, 1, 5000) };
        a = a.attach(&mut rig);
        if kind == 0 {
            b = b.attach(&mut rig);
        }
        rest(&mut rig);
        let bytes = stream(1, RING);
        // The bell is not rung: only the close tells of the bytes.
        let program = a.program();
        assert_eq!(program.ends.producer.write(&bytes).unwrap(), RING);
        program.ends.producer.publish();
        program.close(&mut rig);
        program.close_control(&mut rig);
        let got = if kind == 2 {
            rest(&mut rig);
            let Peer::Socket(stream) = &mut b else { panic!() };
            let mut got = Vec::new();
            std::io::Read::read_to_end(stream, &mut got).unwrap();
            got
        } else {
            read_all(&mut rig, &mut b)
        };
        assert!(got == bytes, "{} bytes of kind {kind}", got.len());
        match kind {
            0 => {
                assert_eq!(end(b.program()), End::Finished);
                let own = b.program().own;
                let ops = ops_for(&mut rig, own);
                answer_close(&mut rig, own, ops);
            }
            1 => {
                let (own, ops) = (b.kernel().own, b.kernel().ops.clone());
                answer_close(&mut rig, own, ops);
            }
            _ => {}
        }
        rest(&mut rig);
        let program = a.program();
        assert_eq!(ops_for(&mut rig, program.own).last(), Some(&RST), "the guest may forget the socket");
        assert_eq!(ops_for(&mut rig, program.control), [RST]);
        assert_eq!(rig.count(0, SocketWord::Connections), 0);
        assert_eq!(rig.count(0, SocketWord::Malformed), 0);
    }
}

#[test]
fn bytes_that_are_added_after_the_close_do_not_arrive() {
    let mut rig = rig_with(2, &[0, 1]);
    let (mut a, mut b) = attached(&mut rig);
    // The receiver's ring is full.
    while a.write(&mut rig, &stream(1, 1000)) > 0 {
        rig.now += Duration::from_micros(100);
        rig.settle();
    }
    let before = a.program().ends.producer.position();
    let _ = b.read(&mut rig, 500);
    a.program().close(&mut rig);
    rig.step();
    let mut got = 500 + b.read(&mut rig, 1 << 20).len();
    for _ in 0..100 {
        a.write(&mut rig, &[0xee; 100]);
        rig.now += Duration::from_micros(100);
        rig.settle();
        got += b.read(&mut rig, 1 << 20).len();
    }
    assert_eq!(got as u32, before);
    assert_eq!(end(b.program()), End::Finished);
}

#[test]
fn the_channel_of_a_program_that_is_gone_is_free_once_its_bytes_have_arrived() {
    for kind in [0, 1] {
        let mut rig = rig_with(2, &[0, 1]);
        let (a, mut b) = connect(&mut rig, 0, 1, 5000);
        let mut a = a.attach(&mut rig);
        if kind == 0 {
            b = b.attach(&mut rig);
        }
        let bytes = stream(1, RING);
        assert_eq!(a.write(&mut rig, &bytes), RING);
        b.write(&mut rig, &[1; 1000]);
        // The guest closes both sockets, in this order.
        a.program().close_control(&mut rig);
        a.program().close(&mut rig);
        let got = read_all(&mut rig, &mut b);
        assert!(got == bytes);
        let (own, ops) = if kind == 0 {
            assert_eq!(end(b.program()), End::Finished);
            let own = b.program().own;
            (own, ops_for(&mut rig, own))
        } else {
            (b.kernel().own, b.kernel().ops.clone())
        };
        answer_close(&mut rig, own, ops);
        let program = a.program();
        assert_eq!(ops_for(&mut rig, program.own).last(), Some(&RST));
        assert_eq!(ops_for(&mut rig, program.control), [RST]);
        assert_eq!(rig.count(0, SocketWord::Connections), 0);
        // The channel is free again.
        for port in 6000..6040 {
            let (a, _) = connect(&mut rig, 0, 1, port);
            let mut a = a.attach(&mut rig);
            a.program().close_control(&mut rig);
            a.program().close(&mut rig);
            rest(&mut rig);
        }
    }
}

#[test]
fn a_program_that_leaves_nothing_behind_leaves_no_time_limit() {
    let mut rig = rig_with(2, &[0]);
    for port in 5000..5040 {
        let (a, _) = connect(&mut rig, 0, 1, port);
        let mut a = a.attach(&mut rig);
        rest(&mut rig);
        a.program().close(&mut rig);
        a.program().close_control(&mut rig);
        rest(&mut rig);
        assert_eq!(rig.switch.pairs.next_drain(), None);
    }
}

#[test]
fn what_a_program_that_is_gone_has_left_is_given_up_after_a_while() {
    for kind in 0..2 {
        let mut rig = rig_with(2, &[0, 1]);
        let (a, mut b) = connect(&mut rig, 0, 1, 5000);
        let mut a = a.attach(&mut rig);
        if kind == 0 {
            b = b.attach(&mut rig);
        }
        let mut written = 0;
        for _ in 0..50 {
            written += a.write(&mut rig, &stream(1, 100_000));
            rig.now += Duration::from_micros(100);
            rig.settle();
        }
        assert!(written > RING, "the receiver reads nothing");
        a.program().close_control(&mut rig);
        a.program().close(&mut rig);
        rest(&mut rig);
        rig.now += Duration::from_millis(9900);
        rest(&mut rig);
        assert_eq!(rig.count(1, SocketWord::Connections), 1 + u64::from(kind == 0));
        assert!(rig.switch.pause(rig.now).is_some_and(|pause| pause <= Duration::from_millis(100)));
        rig.now += Duration::from_millis(100);
        rest(&mut rig);
        assert_eq!(rig.count(0, SocketWord::Connections), 0);
        let got = read_all(&mut rig, &mut b).len();
        assert!(got > 0 && got < written);
        if kind == 0 {
            assert_eq!(end(b.program()), End::Reset);
            let own = b.program().own;
            assert_eq!(ops_for(&mut rig, own).last(), Some(&RST));
        } else {
            assert_eq!(b.kernel().ops.last(), Some(&RST));
        }
        // The channel is free.
        let (a, _) = connect(&mut rig, 0, 1, 5001);
        a.attach(&mut rig);
    }
}

#[test]
fn one_direction_ends_and_the_other_one_goes_on() {
    for by_word in [false, true] {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) = attached(&mut rig);
        let bytes = stream(1, 20_000);
        a.write(&mut rig, &bytes);
        if by_word {
            a.program().ends.producer.finish(End::Finished);
        } else {
            let own = a.program().own;
            rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
        }
        assert!(read_all(&mut rig, &mut b) == bytes);
        assert_eq!(end(b.program()), End::Finished);
        let own = b.program().own;
        assert_eq!(ops_for(&mut rig, own), [SHUTDOWN]);
        // The other direction.
        let back = stream(2, 150_000);
        let mut sent = 0;
        let mut got = Vec::new();
        while got.len() < back.len() {
            sent += b.write(&mut rig, &back[sent..]);
            got.extend(read_all(&mut rig, &mut a));
        }
        assert!(got == back);
        assert_eq!(a.program().ends.consumer.look().unwrap().end, End::Open);
        b.program().close(&mut rig);
        rest(&mut rig);
        assert_eq!(end(a.program()), End::Finished);
    }
}

#[test]
fn one_direction_ends_towards_packets_and_from_packets() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, mut b) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    a.write(&mut rig, b"question");
    a.program().ends.producer.finish(End::Finished);
    assert_eq!(read_all(&mut rig, &mut b), b"question");
    assert_eq!(b.kernel().ops, [SHUTDOWN]);
    b.write(&mut rig, b"answer");
    let own = b.kernel().own;
    rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
    rest(&mut rig);
    assert_eq!(a.read(&mut rig, 100), b"answer");
    assert_eq!(end(a.program()), End::Finished);
}

#[test]
fn a_close_of_the_peer_is_no_reset_though_the_guest_answers_by_one() {
    let mut rig = rig_with(2, &[0, 1]);
    let (mut a, mut b) = attached(&mut rig);
    b.write(&mut rig, &stream(1, 10_000));
    b.program().close(&mut rig);
    rest(&mut rig);
    // Linux, whose socket is empty, answers at once.
    let program = a.program();
    assert_eq!(ops_for(&mut rig, program.own), [SHUTDOWN]);
    rig.send_control(program.own, RST, 0);
    rest(&mut rig);
    assert!(a.read(&mut rig, 1 << 20) == stream(1, 10_000));
    assert_eq!(end(a.program()), End::Finished);
    assert!(a.program().signals > 0, "the program is woken up");
    // The control connections are still there, and own their channels.
    assert_eq!([0, 1].map(|guest| rig.count(guest, SocketWord::Connections)), [1, 1]);
    a.program().close_control(&mut rig);
    b.program().close_control(&mut rig);
    rest(&mut rig);
    assert_eq!([0, 1].map(|guest| rig.count(guest, SocketWord::Connections)), [0, 0]);
}

#[test]
fn a_reset_of_the_peer_follows_its_bytes() {
    for from_ring in [false, true] {
        let mut rig = rig_with(2, &[0, 1]);
        let (a, mut b) = connect(&mut rig, 0, 1, 5000);
        let mut a = a.attach(&mut rig);
        if from_ring {
            b = b.attach(&mut rig);
        }
        rest(&mut rig);
        let bytes = stream(1, 10_000);
        assert_eq!(b.write(&mut rig, &bytes), bytes.len());
        let own = if from_ring { b.program().own } else { b.kernel().own };
        rig.send_control(own, RST, 0);
        rest(&mut rig);
        assert!(a.read(&mut rig, 1 << 20) == bytes);
        assert_eq!(end(a.program()), End::Finished);
        let own = a.program().own;
        assert_eq!(ops_for(&mut rig, own), [RST]);
        assert!(a.program().signals > 0);
    }
}

#[test]
fn packets_beyond_the_room_of_the_ring_are_lost_with_a_reset() {
    let mut rig = rig_with(2, &[0]);
    let (a, mut b) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    let mut sent = 0;
    for _ in 0..50 {
        sent += b.write(&mut rig, &stream(1, 10_000));
        rig.now += Duration::from_micros(100);
        rig.settle();
    }
    assert!(sent > RING);
    let own = b.kernel().own;
    rig.send_control(own, RST, 0);
    rest(&mut rig);
    assert_eq!(rig.drivers[1].outstanding(), 0, "nothing waits for a connection that is over");
    assert_eq!(a.read(&mut rig, 1 << 20).len(), RING);
    assert_eq!(end(a.program()), End::Reset);
}

#[test]
fn a_connection_that_is_forbidden_or_whose_peer_is_removed_is_reset() {
    for removed in [false, true] {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) = attached(&mut rig);
        a.write(&mut rig, b"some bytes");
        let devices =
            if removed { vec![device(3, &["d"])] } else { vec![device(3, &["d"]), device(4, &["e"])] };
        assert_eq!(rig.configure(devices), 0);
        a.write(&mut rig, b"more bytes");
        rest(&mut rig);
        a.read(&mut rig, 100);
        assert_eq!(end(a.program()), End::Reset);
        let own = a.program().own;
        assert_eq!(ops_for(&mut rig, own), [RST]);
        if !removed {
            assert_eq!(b.program().ends.consumer.look().unwrap().end, End::Reset);
            assert!(!b.read(&mut rig, 100).ends_with(b"more bytes"));
        }
        a.program().close_control(&mut rig);
        rest(&mut rig);
        assert_eq!(rig.count(0, SocketWord::Connections), 0);
    }
}

#[test]
fn another_region_ends_what_used_the_one_before() {
    let mut rig = rig_with(2, &[0, 1]);
    let (mut a, mut b) = attached(&mut rig);
    // The same region again changes nothing.
    rig.announce_region(0);
    Exchange::new(1, 50_000).run(&mut rig, &mut a, &mut b);
    rig.give_region(0, REGION);
    a.write(&mut rig, b"into the former region");
    rest(&mut rig);
    assert_eq!((b.read(&mut rig, 100), end(b.program())), (vec![], End::Reset));
    let program = a.program();
    assert_eq!((ops_for(&mut rig, program.own), ops_for(&mut rig, program.control)), (vec![RST], vec![RST]));
    let (a, b) = connect(&mut rig, 0, 1, 5001);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    Exchange::new(2, 50_000).run(&mut rig, &mut a, &mut b);
    // Without a region, connections that use packets go on.
    let (mut c, mut d) = connect(&mut rig, 0, 1, 5002);
    rig.remove_region(0);
    rest(&mut rig);
    assert_eq!(end(b.program()), End::Reset);
    let program = a.program();
    assert_eq!((ops_for(&mut rig, program.own), ops_for(&mut rig, program.control)), (vec![RST], vec![RST]));
    assert!(open_control(&mut rig, 0, 9000).is_none());
    Exchange::new(3, 50_000).run(&mut rig, &mut c, &mut d);
}

#[test]
fn a_channel_is_not_given_away_before_its_control_connection_has_ended() {
    let mut rig = rig_with(2, &[0]);
    let mut programs = Vec::new();
    for port in 5000..5031 {
        let (a, b) = connect(&mut rig, 0, 1, port);
        let mut a = a.attach(&mut rig);
        let mut b = b;
        let own = b.kernel().own;
        rig.send_control(own, RST, 0);
        rest(&mut rig);
        assert_eq!(end(a.program()), End::Finished);
        programs.push(a);
    }
    let (_, _) = connect(&mut rig, 0, 1, 6000);
    let mut control = open_control(&mut rig, 0, 9000).unwrap();
    let own = rig.ends(0, 1, 6000).0;
    assert_eq!(ask(&mut rig, &mut control, request_for(own)).status, taut_queue_pair::Status::Full);
    programs[17].program().close_control(&mut rig);
    rest(&mut rig);
    let mut again = Program::attach(&mut rig, own);
    assert_eq!(again.answer.channel, programs[17].program().answer.channel);
    assert_eq!(again.take_signals(&mut rig), 0);
    assert!(
        Word::ALL.into_iter().all(|word| { word == Word::OutBytesWait || again.channel().load(word) == 0 })
    );
    rig.send_control(again.own, SHUTDOWN, CLOSE);
    rest(&mut rig);
}
