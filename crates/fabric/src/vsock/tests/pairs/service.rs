//! The service: which requests are answered how, and what programs can do to it.

use std::time::Duration;

use taut_api::fabric::config::SocketConfig;
use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::message::{ANSWER_LEN, REQUEST_LEN};
use taut_queue_pair::{AttachAnswer, AttachRequest, SERVICE_PORT, Status};
use taut_virtq::socket_header::*;

use super::super::rig::*;
use super::peers::{Exchange, Peer, connect, connect_to_host};
use super::program::{ask, control_from, open_control, ops_for, request_for, take_for};
use super::*;

#[test]
fn a_guest_without_a_region_is_refused_like_for_an_absent_port() {
    let mut rig = rig_with(2, &[0]);
    rig.is_refused(control_from(1, 9000));
    assert!(rig.questions().is_empty(), "tautd is not asked");
    assert_eq!((rig.count(1, SocketWord::Refused), rig.count(1, SocketWord::Connections)), (1, 0));
    let own = control_from(0, 9000);
    let request = SocketHeader { kind: SEQPACKET, ..rig.header(own, REQUEST) };
    assert!(rig.drivers[0].send(request, &[]));
    rig.settle();
    assert_eq!(ops_for(&mut rig, own), [RST]);
    assert!(open_control(&mut rig, 0, 9000).is_some());
    // Other ports of the host are those of programs.
    rig.send_control(Own { peer: (2, SERVICE_PORT + 1), ..own }, REQUEST, 0);
    rig.settle();
    assert_eq!(rig.questions().len(), 1);
}

#[test]
fn requests_that_attach_nothing_are_answered_and_are_the_last_on_their_connection() {
    let mut rig = rig_with(3, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let a = a.attach(&mut rig);
    let (_, _) = connect(&mut rig, 1, 2, 5001);
    let (of_0, of_1) = (rig.ends(0, 1, 5000).0, rig.ends(1, 2, 5001).0);
    let requested = rig.ends(0, 2, 5002).0;
    let (records, _) = rig.connect_as(SEQPACKET, 0, 2, 5003);
    rig.send_control(requested, REQUEST, 0);
    rig.settle();
    let mut control = open_control(&mut rig, 0, 8000).unwrap();
    let own_control = request_for(control);
    let mut version = request_for(of_0).to_bytes();
    version[0] = 2;
    let mut refused = |bytes: [u8; REQUEST_LEN]| {
        rig.now += Duration::from_millis(5);
        let mut control = open_control(&mut rig, 0, 8001).unwrap();
        rig.write(control, &bytes);
        // Bells behind a request that attaches nothing.
        rig.write(control, b"bells");
        rig.settle();
        let packets = take_for(&mut rig, control);
        let payload: Vec<u8> = packets.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        assert_eq!(packets.last().unwrap().0.op, RST);
        control.taken += ANSWER_LEN as u32;
        let answer = AttachAnswer::from_bytes(&payload[..].try_into().unwrap()).unwrap();
        assert_eq!(answer, AttachAnswer::refusal(answer.status));
        rig.send_control(control, RST, 0);
        rig.settle();
        rig.check();
        answer.status
    };
    // The connection of two other guests, with its addresses both ways; of this guest's, from the
    // wrong side; one that does not exist, is not accepted, is no stream, or a control connection.
    for request in [
        request_for(of_1),
        AttachRequest { own_port: 80, peer_cid: 4, peer_port: 5001 },
        AttachRequest { own_port: 80, peer_cid: 3, peer_port: 5000 },
        AttachRequest { own_port: 5000, peer_cid: 3, peer_port: 5000 },
        AttachRequest { own_port: 7, peer_cid: 4, peer_port: 7 },
        request_for(requested),
        request_for(records),
        own_control,
        AttachRequest { own_port: 8001, peer_cid: 2, peer_port: SERVICE_PORT },
        AttachRequest { own_port: u32::MAX, peer_cid: u32::MAX, peer_port: u32::MAX },
    ] {
        assert_eq!(refused(request.to_bytes()), Status::NoConnection, "{request:?}");
    }
    assert_eq!(refused(request_for(of_0).to_bytes()), Status::AttachedAlready);
    assert_eq!(refused(version), Status::UnknownVersion);
    assert_eq!(refused([0xff; REQUEST_LEN]), Status::UnknownVersion);
    assert_eq!(rig.count(0, SocketWord::Malformed), 0);
    // The connection that was asked for is as before, and the first control connection, too.
    let (mut a, mut b) = (a, b);
    Exchange::new(1, 50_000).run(&mut rig, &mut a, &mut b);
    assert_eq!(ask(&mut rig, &mut control, request_for(of_0)).status, Status::AttachedAlready);
}

#[test]
fn a_request_may_come_in_pieces_with_bells_behind_it() {
    let mut rig = rig_with(2, &[0]);
    let (_, _) = connect(&mut rig, 0, 1, 5000);
    let own = rig.ends(0, 1, 5000).0;
    let control = open_control(&mut rig, 0, 9000).unwrap();
    let bytes = request_for(own).to_bytes();
    for piece in [&bytes[..1], &[], &bytes[1..9], &bytes[9..]] {
        assert!(take_for(&mut rig, control).is_empty());
        rig.write(control, piece);
        rig.settle();
    }
    let [(_, answer)] = &take_for(&mut rig, control)[..] else { panic!("no answer") };
    assert_eq!(AttachAnswer::from_bytes(&answer[..].try_into().unwrap()).unwrap().status, Status::Attached);
    rig.write(control, &vec![7; 40_000]);
    rest(&mut rig);
    assert_eq!(rig.drivers[0].outstanding(), 0);
    // The fabric tells that it has taken the bells.
    assert!(take_for(&mut rig, control).iter().any(|(header, _)| header.op == CREDIT_UPDATE));
    rig.send_control(control, CREDIT_REQUEST, 0);
    rig.settle();
    let [(header, _)] = &take_for(&mut rig, control)[..] else { panic!("no credit") };
    assert_eq!((header.op, header.fwd_cnt), (CREDIT_UPDATE, 40_016));
}

#[test]
fn control_connections_count_to_the_limit_of_their_guest() {
    let few = SocketConfig { connections: 5, ..device(3, &["d"]) };
    let mut rig = rig_that_sleeps(vec![few, device(4, &["d"])]);
    rig.give_region(0, REGION);
    for port in 5000..5002 {
        let (a, _) = connect(&mut rig, 0, 1, port);
        a.attach(&mut rig);
    }
    assert!(open_control(&mut rig, 0, 9000).is_some());
    assert!(open_control(&mut rig, 0, 9001).is_none());
    assert_eq!((rig.count(0, SocketWord::Limited), rig.count(0, SocketWord::Connections)), (1, 5));
    assert_eq!(rig.count(1, SocketWord::Connections), 2);
}

#[test]
fn a_full_region_disturbs_nobody_who_is_attached() {
    let many = |number| SocketConfig { connections: 200, ..device(number, &["d"]) };
    let mut rig = rig_that_sleeps(vec![many(3), many(4)]);
    rig.give_region(0, REGION);
    let mut all: Vec<_> = (5000..5031)
        .map(|port| {
            let (a, b) = connect(&mut rig, 0, 1, port);
            (a.attach(&mut rig), b)
        })
        .collect();
    let (_, _) = connect(&mut rig, 0, 1, 6000);
    for port in 9000..9010 {
        let mut control = open_control(&mut rig, 0, port).unwrap();
        let own = rig.ends(0, 1, 6000).0;
        assert_eq!(ask(&mut rig, &mut control, request_for(own)).status, Status::Full);
        rig.send_control(control, RST, 0);
    }
    for (seed, (a, b)) in (0..).zip(&mut all) {
        Exchange::new(seed, 20_000).run(&mut rig, a, b);
    }
}

#[test]
fn attaching_thousands_of_times_uses_nothing_up() {
    let mut rig = rig_with(2, &[0]);
    for turn in 0..4000 {
        let (a, _) = connect(&mut rig, 0, 1, 5000 + turn);
        let mut a = a.attach(&mut rig);
        let program = a.program();
        if turn % 2 == 0 {
            program.close(&mut rig);
        }
        program.close_control(&mut rig);
        if turn % 2 == 1 {
            program.close(&mut rig);
        }
        rig.settle();
        let peer = rig.ends(0, 1, 5000 + turn).1;
        rig.send_control(peer, RST, 0);
        rig.settle();
        let (own, other) = rig.ends(0, 1, 5000 + turn);
        assert_eq!(ops_for(&mut rig, own).last(), Some(&RST), "turn {turn}");
        assert_eq!(ops_for(&mut rig, other).last(), Some(&SHUTDOWN), "turn {turn}");
        ops_for(&mut rig, program.control);
    }
    rest(&mut rig);
    rig.check_nothing_left();
    assert_eq!(rig.switch.sched.turns.pace.all().map(|places| places.len()), [0, 0]);
}

#[test]
fn a_flood_of_bells_costs_little_and_delays_nobody() {
    let mut rig = rig_with(3, &[0]);
    let (a, _) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    let (mut c, mut d) = connect(&mut rig, 2, 1, 5001);
    let mut exchange = Exchange::new(1, 300_000);
    for turn in 0..50_000 {
        while rig.drivers[0].outstanding() < 60 {
            a.program().bell(&mut rig);
        }
        let done = exchange.step(&mut rig, &mut c, &mut d);
        let queued = rig.switch.sched.turns.pace.all();
        assert!(queued.iter().all(|places| places.len() <= 2), "{queued:?}");
        if done {
            assert!(turn > 10);
            rest(&mut rig);
            // The bells have said nothing, and the fabric waits for the next one.
            assert!(rig.switch.pause(rig.now).is_some_and(|pause| pause > Duration::from_millis(10)));
            a.program().take_signals(&mut rig);
            assert_eq!(a.program().signals, 0);
            return;
        }
    }
    panic!("the neighbour's bytes do not arrive");
}

#[test]
fn a_program_that_takes_no_signals_is_owed_one() {
    let mut rig = rig_with(2, &[0]);
    let (a, mut b) = connect(&mut rig, 0, 1, 5000);
    let own = rig.ends(0, 1, 5000).0;
    let mut a = a.attach(&mut rig);
    // The guest gives no more credit on the control connection.
    let control = a.program().control;
    let header = SocketHeader { buf_alloc: 0, fwd_cnt: 32, ..rig.header(control, CREDIT_UPDATE) };
    assert!(rig.drivers[0].send(header, &[]));
    for _ in 0..100 {
        a.program().ends.consumer.stop_waiting();
        a.program().ends.consumer.wait();
        b.write(&mut rig, b"x");
        rest(&mut rig);
    }
    assert_eq!(a.program().take_signals(&mut rig), 0);
    rig.send_control(control, CREDIT_UPDATE, 0);
    rest(&mut rig);
    assert_eq!(a.program().take_signals(&mut rig), 1);
    assert_eq!(a.read(&mut rig, 1000).len(), 100);
    assert!(ops_for(&mut rig, own).is_empty());
}

#[test]
fn a_program_whose_signals_stay_unread_is_asked_what_it_has_read() {
    let mut rig = rig_with(2, &[0]);
    let (a, mut b) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    let control = a.program().control;
    let (mut signals, mut asked) = (0, 0);
    for _ in 0..400 {
        a.program().ends.consumer.stop_waiting();
        a.program().ends.consumer.wait();
        b.write(&mut rig, b"x");
        rig.now += Duration::from_micros(100);
        rig.settle();
        for (header, bytes) in take_for(&mut rig, control) {
            signals += bytes.len();
            asked += usize::from(header.op == CREDIT_REQUEST);
        }
        a.read(&mut rig, 100);
    }
    // Linux ends a connection that has some hundreds of packets unread.
    assert!(signals < 200 && asked > 0, "{signals} signals, asked {asked} times");
}

#[test]
fn a_violation_on_a_control_connection_returns_its_end_to_packets() {
    let mut rig = rig_with(1, &[0]);
    let (a, mut b) = connect_to_host(&mut rig, 5000);
    let mut a = a.attach(&mut rig);
    let own = a.program().control;
    rig.send_control(own, RESPONSE, 0);
    rest(&mut rig);
    assert_eq!(ops_for(&mut rig, own), [RST]);
    assert_eq!((rig.count(0, SocketWord::Connections), rig.count(0, SocketWord::Malformed)), (1, 1));
    let mut a = Peer::Packets(a.program().kernel.take().unwrap());
    Exchange::new(1, 10_000).run(&mut rig, &mut a, &mut b);
}
