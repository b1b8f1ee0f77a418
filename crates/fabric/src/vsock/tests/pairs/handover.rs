//! Handover of attached ends to another switch.

use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::{AttachAnswer, End, Status, Word};
use taut_virtq::socket_header::*;

use super::super::rig::*;
use super::peers::{Exchange, Peer, connect, connect_to_host, stream};
use super::program::{open_control, ops_for, request_for, take_for};
use super::*;

fn upgrade(rig: &mut Rig) {
    let sockets = rig.stop_switch();
    rig.replace_switch(sockets);
    rig.check();
}

#[test]
fn an_exchange_goes_on_under_another_switch() {
    for kind in 0..4 {
        for seed in 0..3 {
            let mut rig = rig_with(2, &[0, 1]);
            let (mut a, mut b) =
                if kind == 3 { connect_to_host(&mut rig, 5000) } else { connect(&mut rig, 0, 1, 5000) };
            if kind != 1 {
                a = a.attach(&mut rig);
            }
            if kind <= 1 {
                b = b.attach(&mut rig);
            }
            let mut exchange = Exchange::new(seed, 300_000);
            let mut turn = 0;
            while !exchange.step(&mut rig, &mut a, &mut b) {
                if turn % 7 == 3 {
                    upgrade(&mut rig);
                }
                turn += 1;
                assert!(turn < 100_000, "kind {kind}: the bytes do not arrive");
            }
            assert_eq!(rig.count(0, SocketWord::Resets), 0);
        }
    }
}

#[test]
fn a_program_that_sleeps_is_woken_by_the_next_switch() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    rest(&mut rig);
    b.program().ends.consumer.wait();
    // Written without a bell: the last fabric has not seen it, and the next one looks.
    a.program().ends.producer.write(b"bytes").unwrap();
    a.program().ends.producer.publish();
    upgrade(&mut rig);
    rest(&mut rig);
    assert!(b.program().take_signals(&mut rig) >= 1);
    assert_eq!(b.read(&mut rig, 100), b"bytes");
    // A signal that was not delivered is not lost, either.
    rest(&mut rig);
    b.program().ends.consumer.stop_waiting();
    b.program().ends.consumer.wait();
    rig.drivers[1].stuck = true;
    a.write(&mut rig, b"more");
    let position = rig.stop(1, 0).unwrap();
    rig.settle();
    let _ = position;
    upgrade(&mut rig);
    rig.drivers[1].stuck = false;
    rest(&mut rig);
    assert!(b.program().take_signals(&mut rig) >= 1);
    assert_eq!(b.read(&mut rig, 100), b"more");
}

#[test]
fn requests_and_answers_in_the_middle_go_on() {
    let mut rig = rig_with(2, &[0]);
    let (_, _) = connect(&mut rig, 0, 1, 5000);
    let own = rig.ends(0, 1, 5000).0;
    let mut control = open_control(&mut rig, 0, 9000).unwrap();
    let bytes = request_for(own).to_bytes();
    rig.write(control, &bytes[..5]);
    rig.step();
    upgrade(&mut rig);
    rig.settle();
    // The guest has no buffer for the answer until after the next handover.
    rig.drivers[0].stuck = true;
    rig.write(control, &bytes[5..]);
    let position = rig.stop(0, 0).unwrap();
    rig.step();
    let _ = position;
    upgrade(&mut rig);
    rig.drivers[0].stuck = false;
    rig.settle();
    let answer: Vec<u8> = take_for(&mut rig, control).into_iter().flat_map(|(_, bytes)| bytes).collect();
    let answer = AttachAnswer::from_bytes(&answer[..].try_into().unwrap()).unwrap();
    assert_eq!(answer.status, Status::Attached);
    control.taken += 32;
    rig.send_control(control, SHUTDOWN, SHUTDOWN_SEND | SHUTDOWN_RCV);
    rest(&mut rig);
    // The end returns to packets.
    assert_eq!((ops_for(&mut rig, control), ops_for(&mut rig, own)), (vec![RST], vec![]));
}

#[test]
fn what_a_program_that_is_gone_has_left_is_delivered_by_the_next_switch() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    let bytes = stream(1, 3 * RING / 2);
    let mut sent = 0;
    for _ in 0..20 {
        sent += a.write(&mut rig, &bytes[sent..]);
        rig.now += Duration::from_micros(100);
        rig.settle();
    }
    assert_eq!(sent, bytes.len());
    a.program().close(&mut rig);
    a.program().close_control(&mut rig);
    rest(&mut rig);
    upgrade(&mut rig);
    // Bytes behind the close are not for the peer.
    let channel = a.program().channel().clone();
    channel.store(Word::OutHead, channel.load(Word::OutHead).wrapping_add(100));
    let mut got = Vec::new();
    for _ in 0..20 {
        got.extend(b.read(&mut rig, 10_000));
        rest(&mut rig);
    }
    assert!(got == bytes, "{} of {}", got.len(), bytes.len());
    assert_eq!(b.program().ends.consumer.look().unwrap().end, End::Finished);
    let own = b.program().own;
    rig.send_control(own, RST, 0);
    rest(&mut rig);
    assert_eq!(rig.count(0, SocketWord::Connections), 0);
}

#[test]
fn a_channel_whose_connection_is_over_stays_its_programs_under_the_next_switch() {
    let mut rig = rig_with(2, &[0]);
    let (a, mut b) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    let own = b.kernel().own;
    rig.send_control(own, RST, 0);
    rest(&mut rig);
    upgrade(&mut rig);
    let used = a.program().answer.channel;
    for port in 6000..6030 {
        let (c, _) = connect(&mut rig, 0, 1, port);
        assert_ne!(c.attach(&mut rig).program().answer.channel, used);
    }
    a.program().close_control(&mut rig);
    rest(&mut rig);
    let (c, _) = connect(&mut rig, 0, 1, 7000);
    assert_eq!(c.attach(&mut rig).program().answer.channel, used);
}

#[test]
fn after_a_kill_all_is_reset_and_all_channels_are_free() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    Exchange::new(1, 50_000).run(&mut rig, &mut a, &mut b);
    a.write(&mut rig, b"lost");
    rig.replace_switch(Vec::new());
    rest(&mut rig);
    for peer in [&mut a, &mut b] {
        let program = peer.program();
        let (own, control) = (program.own, program.control);
        assert_eq!(ops_for(&mut rig, own), [RST]);
        assert_eq!(take_for(&mut rig, control).last().unwrap().0.op, RST);
    }
    assert_eq!([0, 1].map(|guest| rig.count(guest, SocketWord::Connections)), [0, 0]);
    for port in 5000..5031 {
        let (a, _) = connect(&mut rig, 0, 1, port);
        a.attach(&mut rig);
    }
}

#[test]
fn without_its_region_an_attached_connection_is_reset() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    let (c, d) = connect(&mut rig, 0, 1, 5001);
    let (mut c, mut d) = (c, d.attach(&mut rig));
    a.write(&mut rig, b"on its way");
    let sockets = rig.stop_switch();
    rig.forget_region(0);
    rig.replace_switch(sockets);
    rest(&mut rig);
    let (of_a, of_b) = (a.program().own, b.program().own);
    assert_eq!((ops_for(&mut rig, of_a), ops_for(&mut rig, of_b)), (vec![RST], vec![RST]));
    // The other one, of which the guest with a region is attached, goes on.
    Exchange::new(1, 50_000).run(&mut rig, &mut c, &mut d);
}

#[test]
fn words_that_are_impossible_at_the_handover_reset_their_connection_only() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    let (c, d) = connect(&mut rig, 0, 1, 5001);
    let (mut c, mut d) = (c.attach(&mut rig), d.attach(&mut rig));
    rest(&mut rig);
    let sockets = rig.stop_switch();
    let channel = a.program().channel().clone();
    channel.store(Word::OutTail, 12345);
    channel.store(Word::InHead, u32::MAX);
    rig.replace_switch(sockets);
    rest(&mut rig);
    let (of_a, of_b) = (a.program().own, b.program().own);
    assert_eq!((ops_for(&mut rig, of_a), ops_for(&mut rig, of_b)), (vec![RST], vec![RST]));
    // The program learns that the channel is not its own any more.
    let control = a.program().control;
    assert_eq!(take_for(&mut rig, control).last().unwrap().0.op, RST);
    Exchange::new(1, 50_000).run(&mut rig, &mut c, &mut d);
    let _: &Peer = &a;
}

#[test]
fn a_channel_stays_its_programs_if_the_peer_is_gone_after_the_handover() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, _b) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    rest(&mut rig);
    let sockets = rig.stop_switch();
    rig.expect_devices(vec![device(3, &["d"])]);
    rig.replace_switch(sockets);
    rest(&mut rig);
    assert!(a.program().take_signals(&mut rig) >= 1);
    assert_eq!(a.program().ends.consumer.look().unwrap().end, End::Reset);
    // Nobody else gets the channel while the program has it.
    let used = a.program().answer.channel;
    let (c, _program) = connect_to_host(&mut rig, 6000);
    assert_ne!(c.attach(&mut rig).program().answer.channel, used);
}
