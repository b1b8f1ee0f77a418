//! All kinds of flows: every byte arrives once and in order.

use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::memory::Copying;
use taut_queue_pair::{AttachAnswer, Ends, Role, Status};
use taut_virtq::Start;
use taut_virtq::socket_header::*;

use super::super::host::{client, listen};
use super::peers::{Exchange, Peer, connect, connect_to_host, stream};
use super::program::{Program, open_control, ops_for, request_for, take_for};
use super::*;

/// Bytes of an exchange in each direction.
const LEN: usize = 700_000;

#[test]
fn ring_to_ring() {
    for seed in 0..6 {
        let mut rig = rig_with(2, &[0, 1]);
        let (a, b) = connect(&mut rig, 0, 1, 5000);
        let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
        Exchange::new(seed, LEN).run(&mut rig, &mut a, &mut b);
        rest(&mut rig);
        b.program().take_signals(&mut rig);
        // What the rings have carried counts as packets would.
        assert_eq!(rig.count(1, SocketWord::RxBytes), LEN as u64 + 32 + b.program().signals as u64);
        assert_eq!(rig.count(0, SocketWord::TxBytes), LEN as u64 + 16 + a.program().bells as u64);
    }
}

#[test]
fn ring_to_packets_and_back() {
    for seed in 0..8 {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) = connect(&mut rig, 0, 1, 5000);
        // The one that has requested the connection is attached, or the other one.
        if seed % 2 == 0 {
            a = a.attach(&mut rig);
        } else {
            b = b.attach(&mut rig);
        }
        Exchange::new(seed, LEN).run(&mut rig, &mut a, &mut b);
    }
}

#[test]
fn ring_to_a_program_on_the_host_and_back() {
    for seed in 0..4 {
        let mut rig = rig_with(1, &[0]);
        let (a, mut b) = connect_to_host(&mut rig, 5000);
        let mut a = a.attach(&mut rig);
        Exchange::new(seed, LEN).run(&mut rig, &mut a, &mut b);
        rest(&mut rig);
        a.program().take_signals(&mut rig);
        assert_eq!(rig.count(0, SocketWord::RxBytes), LEN as u64 + 32 + a.program().signals as u64);
    }
}

#[test]
fn a_client_on_the_host_talks_to_an_attached_end() {
    let mut rig = rig_with(1, &[0]);
    let listener = listen(&mut rig);
    let (mut stream, own) = client(&mut rig, &listener);
    rig.send_control(own, RESPONSE, 0);
    // The answer to the client, and its first bytes, come before the end is attached.
    rig.settle();
    let mut line = [0; 32];
    assert!(std::io::Read::read(&mut stream, &mut line).unwrap() > 0);
    let payload = |packets: Vec<(SocketHeader, Vec<u8>)>| {
        packets.into_iter().filter(|(header, _)| header.op == RW).flat_map(|(_, bytes)| bytes)
    };
    assert!(payload(take_for(&mut rig, own)).eq(b"first bytes".iter().copied()));
    let mut a = Peer::Ring(Box::new(Program::attach(&mut rig, own)));
    assert_eq!(a.program().answer.by_packets, 11);
    Exchange::new(3, LEN).run(&mut rig, &mut a, &mut Peer::Socket(stream));
}

#[test]
fn bytes_that_were_sent_before_the_attach_come_first() {
    for both in [false, true] {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) = connect(&mut rig, 0, 1, 5000);
        let bytes = stream(7, 90_000);
        let mut sent = a.write(&mut rig, &bytes[..2000]);
        rig.settle();
        // The guest takes nothing more: its 64 buffers fill, and the rest waits.
        rig.drivers[1].stuck = true;
        for _ in 0..70 {
            sent += a.write(&mut rig, &bytes[sent..sent + 100]);
            rig.settle();
        }
        assert!(rig.drivers[0].outstanding() > 0, "packets wait");
        rig.drivers[1].stuck = false;
        // Those that reach the guest before the request is served are packets still.
        let mut by_packets = Vec::new();
        if both {
            a = Peer::Ring(Box::new(Program::attach(&mut rig, a.kernel().own)));
        }
        let own = b.kernel().own;
        let program = Program::attach(&mut rig, own);
        for (header, payload) in take_for(&mut rig, own) {
            if header.op == RW {
                by_packets.extend(payload);
            }
        }
        assert_eq!(by_packets.len() as u64, program.answer.by_packets);
        b = Peer::Ring(Box::new(program));
        let mut got = by_packets;
        for _ in 0..500 {
            sent += a.write(&mut rig, &bytes[sent..]);
            rig.now += Duration::from_micros(60);
            rig.settle();
            got.extend(b.read(&mut rig, 10_000));
        }
        assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    }
}

#[test]
fn packets_that_wait_go_into_the_ring_of_an_end_that_is_attached_meanwhile() {
    let mut rig = rig_with(2, &[1]);
    let (mut a, mut b) = connect(&mut rig, 0, 1, 5000);
    let own = b.kernel().own;
    let mut control = open_control(&mut rig, 1, 9000).unwrap();
    let bytes = stream(1, 16 << 10);
    let sent = a.write(&mut rig, &bytes);
    // The guest's packets wait in its ring while the request of the other one is taken.
    let position = rig.stop(1, 0).unwrap();
    rig.step();
    assert_eq!(rig.drivers[0].outstanding(), 1);
    rig.write(control, &request_for(own).to_bytes());
    rig.step();
    rig.start(1, 0, Start::At(position)).unwrap();
    rig.settle();
    let answer: Vec<u8> = take_for(&mut rig, control).into_iter().flat_map(|(_, bytes)| bytes).collect();
    let answer = AttachAnswer::from_bytes(&answer[..].try_into().unwrap()).unwrap();
    assert_eq!((answer.status, answer.by_packets), (Status::Attached, 0));
    control.taken += 32;
    let channel = rig.region(1).channel(answer.channel).unwrap();
    let ends = Ends::new(&channel, Role::Guest, Copying::Library);
    b = Peer::Ring(Box::new(Program { own, control, answer, ends, bells: 0, signals: 0, kernel: None }));
    assert!(b.read(&mut rig, 1 << 20) == bytes[..sent]);
    assert_eq!(rig.drivers[0].outstanding(), 0);
    assert!(ops_for(&mut rig, own).is_empty());
}

#[test]
fn a_stream_between_rings_does_not_wait_for_buffers_of_its_receiver() {
    let mut rig = rig_with(2, &[0, 1]);
    let (to_stuck, _) = rig.connect(0, 1, 4000);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    rig.drivers[1].stuck = true;
    for _ in 0..30 {
        rig.write(to_stuck, &[7; 4000]);
        rig.settle();
    }
    Exchange::new(1, LEN).run(&mut rig, &mut a, &mut b);
}

#[test]
fn streams_of_all_kinds_beside_each_other() {
    let mut rig = rig_with(3, &[0, 1]);
    let mut pairs: Vec<(Peer, Peer)> = Vec::new();
    for (port, (from, to)) in (5000..).zip([(0, 1), (1, 0), (0, 2), (2, 1), (1, 2), (0, 1)]) {
        let (mut a, mut b) = connect(&mut rig, from, to, port);
        if from < 2 {
            a = a.attach(&mut rig);
        }
        if to < 2 && port != 5005 {
            b = b.attach(&mut rig);
        }
        pairs.push((a, b));
    }
    pairs.push({
        let (a, b) = connect_to_host(&mut rig, 6000);
        (a.attach(&mut rig), b)
    });
    let mut exchanges: Vec<_> = (0..pairs.len() as u64).map(|seed| Exchange::new(seed, 200_000)).collect();
    for turn in 0..100_000 {
        let all = exchanges.iter_mut().zip(&mut pairs);
        let done = all.map(|(exchange, (a, b))| exchange.step(&mut rig, a, b)).filter(|done| *done).count();
        if turn % 64 == 0 {
            rig.check();
        }
        if done == pairs.len() {
            return;
        }
    }
    panic!("some bytes do not arrive");
}
