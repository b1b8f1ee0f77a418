//! Cases that fuzzing found: guests that do what no driver does, and events at unusual moments.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_virtq::Start;
use taut_virtq::socket_header::*;

use super::rig::*;

#[test]
fn a_reused_connection_number_inherits_nothing() {
    let mut rig = rig(&[&["d"], &["d"], &["e"], &["e"]], 4096);
    let (a, b) = rig.connect(0, 1, 5000);
    let position = rig.stop(1, 0).unwrap();
    rig.write(a, b"waits");
    rig.step();
    rig.send_control(b, RST, 0);
    rig.settle();
    assert_eq!(rig.ops(0), [RST]);
    let (c, d) = rig.ends(2, 3, 5000);
    rig.send_control(c, REQUEST, 0);
    rig.step();
    rig.check();
    rig.start(1, 0, Start::At(position)).unwrap();
    rig.settle();
    assert!(rig.ops(1).is_empty());
    assert_eq!(rig.ops(3), [REQUEST]);
    rig.send_control(d, RESPONSE, 0);
    rig.settle();
    rig.check();
    assert_eq!(rig.ops(2), [RESPONSE]);
}

#[test]
fn a_guest_that_changes_its_packets_in_flight_during_a_pause_starts_anew() {
    for smaller in [false, true] {
        let mut rig = rig(&[&["d"], &["d"]], 300);
        let (a, _) = rig.connect(0, 1, 5000);
        rig.drivers[1].stuck = true;
        (0..30).for_each(|at| rig.write(a, &pattern(at, 4000)));
        rig.settle();
        assert!(rig.drivers[0].outstanding() > 0);
        let position = rig.stop(0, 1).unwrap();
        rig.drivers[0].poked = true;
        if smaller {
            rig.drivers[0].entries = 1;
            rig.start(0, 1, Start::Recover).unwrap();
        } else {
            rig.drivers[0].poke(1, 2, 2, 7);
            rig.start(0, 1, Start::At(position)).unwrap();
        }
        rig.check();
        rig.drivers[1].stuck = false;
        rig.settle();
        rig.check();
        assert_eq!(rig.ops(1).last(), Some(&RST));
    }
}

#[test]
fn a_packet_that_was_changed_before_a_takeover_is_given_back() {
    let mut rig = rig(&[&["d"], &["d"]], 60);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    rig.write(a, &pattern(0, 10_000));
    rig.settle();
    let streams = rig.stop_switch();
    (0..64).for_each(|head| rig.drivers[0].forge(head, |was| SocketHeader { op: CREDIT_UPDATE, ..was }));
    rig.replace_switch(streams);
    rig.check();
    rig.write(a, b"short");
    rig.drivers[1].stuck = false;
    rig.settle();
    rig.check();
    assert_eq!(rig.drivers[0].outstanding(), 0);
    assert_eq!(rig.drivers[1].inbox.back().unwrap().1, b"short");
}

#[test]
fn a_packet_that_was_changed_while_its_ring_was_stopped_ends_the_connections() {
    type Change = fn(SocketHeader) -> SocketHeader;
    let changes: [Change; 2] =
        [|was| SocketHeader { len: 0, ..was }, |was| SocketHeader { len: was.len + 1, ..was }];
    for change in changes {
        let mut rig = rig(&[&["d"], &["d"]], 60);
        let (a, _) = rig.connect(0, 1, 5000);
        rig.drivers[1].stuck = true;
        for at in 0..20 {
            rig.write(a, &pattern(at, 1000));
        }
        rig.settle();
        let position = rig.stop(0, 1).unwrap();
        (0..64).for_each(|head| rig.drivers[0].forge(head, change));
        rig.start(0, 1, Start::At(position)).unwrap();
        // A crowded ring has its packets copied.
        rig.now += Duration::from_millis(2);
        rig.settle();
        rig.check();
        assert_eq!(rig.drivers[0].outstanding(), 0);
        rig.drivers[1].stuck = false;
        rig.settle();
        assert_eq!(rig.ops(1).last(), Some(&RST));
        assert_eq!(rig.count(0, SocketWord::Connections), 0);
    }
}

#[test]
fn a_paused_sender_delays_no_other_sender_and_goes_on() {
    let mut rig = rig(&[&["d"], &["d"], &["d"]], 100);
    let (a, mut b) = rig.connect(0, 1, 5000);
    let (c, _) = rig.connect(2, 1, 5001);
    rig.drivers[1].stuck = true;
    rig.write(a, &pattern(0, 20_000));
    rig.settle();
    let position = rig.stop(0, 1).unwrap();
    rig.write(c, b"other");
    rig.drivers[1].stuck = false;
    rig.settle();
    let last = rig.drivers[1].inbox.pop_back().unwrap();
    assert_eq!(last.1, b"other");
    let mut got = rig.read(&mut b);
    rig.start(0, 1, Start::At(position)).unwrap();
    rig.settle();
    got.extend(rig.read(&mut b));
    assert!(got == pattern(0, 20_000), "{} bytes", got.len());
}

#[test]
fn a_paused_sender_to_the_host_goes_on() {
    let mut rig = rig(&[&[]], 4096);
    let own = Own { guest: 0, port: 5000, peer: (2, 1234), taken: 0 };
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    let (port, request, _) = rig.questions()[0];
    let (ours, mut program) = UnixStream::pair().unwrap();
    rig.answer(port, request, Some(ours.into()));
    rig.settle();
    let mut sent = 0;
    while rig.drivers[0].outstanding() < 4 {
        rig.write(own, &pattern(sent, 1 << 16));
        sent += 1 << 16;
        rig.settle();
    }
    let position = rig.stop(0, 1).unwrap();
    program.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    let _ = std::io::Read::read_to_end(&mut program, &mut got);
    rig.settle();
    rig.start(0, 1, Start::At(position)).unwrap();
    while got.len() < sent {
        let before = got.len();
        rig.settle();
        let _ = std::io::Read::read_to_end(&mut program, &mut got);
        assert!(got.len() > before, "the stream does not go on");
    }
    assert!(got == pattern(0, sent));
}

#[test]
fn a_reset_of_another_socket_type_is_ignored() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, mut b) = rig.connect(0, 1, 5000);
    let strange = SocketHeader { kind: SEQPACKET, ..rig.header(b, RST) };
    assert!(rig.drivers[1].send(strange, &[]));
    rig.settle();
    rig.check();
    rig.write(a, b"still there");
    rig.settle();
    assert_eq!(rig.read(&mut b), b"still there");
}

#[test]
fn a_request_that_becomes_forbidden_before_its_delivery_is_not_delivered() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let position = rig.stop(1, 0).unwrap();
    rig.start(1, 0, Start::At(position)).unwrap();
    let (a, _) = rig.ends(0, 1, 5000);
    // The receiver has no free buffer.
    rig.drivers[1].stuck = true;
    let (b, _) = rig.ends(1, 0, 1);
    for _ in 0..3 {
        // The resets in answer to these fill the buffers.
        (0..40).for_each(|_| rig.send_control(b, RW, 0));
        rig.settle();
    }
    rig.send_control(a, REQUEST, 0);
    rig.settle();
    let apart = vec![device(3, &["d"]), device(4, &["e"])];
    rig.configure(apart);
    rig.drivers[1].stuck = false;
    rig.settle();
    rig.check();
    assert!(
        rig.drivers[1].inbox.drain(..).all(|(header, _)| header.dst_port == 1),
        "the request was delivered"
    );
    assert_eq!(rig.ops(0), [RST]);
}

#[test]
fn a_late_answer_of_tautd_is_for_no_connection() {
    let mut rig = rig(&[&[]], 4096);
    let own = |to| Own { guest: 0, port: 5000, peer: (2, to), taken: 0 };
    rig.send_control(own(1), REQUEST, 0);
    rig.send_control(own(1), RST, 0);
    rig.settle();
    rig.send_control(own(2), REQUEST, 0);
    rig.settle();
    let questions = rig.questions();
    let [(port, first, 1), (_, second, 2)] = questions[..] else { panic!("{questions:?}") };
    rig.answer(port, first, Some(UnixStream::pair().unwrap().0.into()));
    rig.settle();
    rig.check();
    assert!(rig.ops(0).is_empty());
    rig.answer(port, second, None);
    rig.settle();
    assert_eq!(rig.ops(0), [RST]);
    // A guest that gives up its requests gets no more open questions than half-open connections.
    for _ in 0..20 {
        rig.send_control(own(1), REQUEST, 0);
        rig.settle();
        rig.send_control(own(1), RST, 0);
        rig.settle();
    }
    assert_eq!(rig.questions().len(), 8);
    assert_eq!(rig.count(0, SocketWord::Limited), 12);
    rig.check();
}

#[test]
fn a_removed_device_leaves_its_connections_to_no_other_device() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    rig.connect(0, 1, 5000);
    rig.stop(1, 0).unwrap();
    assert_eq!(rig.configure(vec![device(4, &["d"])]), 0);
    assert_eq!(rig.configure(vec![device(4, &["d"]), device(9, &["d"])]), 0);
    rig.check();
    assert_eq!(rig.configure(vec![device(4, &["d"]), device(3, &["d"])]), 0);
    rig.check();
    assert_eq!(rig.count(0, SocketWord::Connections), 0);
}

#[test]
fn of_a_removed_device_only_the_end_of_its_connections_is_heard() {
    let mut rig = rig(&[&["d"], &["d"]], 2000);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    for _ in 0..2 {
        (0..64).for_each(|_| rig.write(a, &[7; 2000]));
        rig.settle();
        rig.now += Duration::from_millis(2);
    }
    // Some payload has been copied by now, and more waits in the ring.
    rig.settle();
    assert!(rig.drivers[0].outstanding() < 64);
    rig.send_control(a, SHUTDOWN, SHUTDOWN_RCV);
    rig.settle();
    rig.drivers[1].stuck = false;
    rig.drivers[1].receive();
    rig.ops(1);
    assert_eq!(rig.configure(vec![device(4, &["d"])]), 0);
    rig.settle();
    assert_eq!(rig.ops(1), [RST]);
    rig.check();
}

#[test]
fn a_deferred_credit_update_of_a_removed_device_is_not_heard() {
    let mut rig = rig(&[&["d"], &["d"]], 2000);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.send_control(a, CREDIT_UPDATE, 0);
    rig.step();
    let position = rig.stop(1, 0).unwrap();
    assert!(rig.drivers[1].inbox.is_empty());
    assert_eq!(rig.configure(vec![device(4, &["d"])]), 0);
    rig.now += Duration::from_millis(2);
    rig.settle();
    rig.start(1, 0, Start::At(position)).unwrap();
    rig.settle();
    assert_eq!(rig.ops(1), [RST]);
}

#[test]
fn devices_that_come_back_after_their_removal_are_served() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    for _ in 0..2 {
        (0..40).for_each(|_| rig.write(a, &[7; 2000]));
        rig.settle();
    }
    assert_eq!(rig.configure(vec![]), 0);
    rig.settle();
    rig.check();
    assert_eq!(rig.configure(vec![device(3, &["d"]), device(4, &["d"])]), 0);
    (0..2).for_each(|guest| rig.restart(guest));
    let (a, mut b) = rig.connect(0, 1, 5000);
    rig.write(a, b"again");
    rig.settle();
    assert_eq!(rig.read(&mut b), b"again");
    assert_eq!(rig.drivers[0].outstanding(), 0);
}

#[test]
fn a_successor_resets_connections_that_its_configuration_forbids() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, _) = rig.connect(0, 1, 5000);
    let streams = rig.stop_switch();
    rig.write(a, b"forbidden");
    rig.expect_devices(vec![device(3, &["d"]), device(4, &[])]);
    rig.replace_switch(streams);
    rig.settle();
    rig.check();
    assert_eq!((rig.ops(0), rig.ops(1)), (vec![RST], vec![RST]));
    assert_eq!(rig.count(0, SocketWord::Connections), 0);
}

#[test]
fn invalid_records_of_connections_are_ignored() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    rig.connect(0, 1, 5000);
    let streams = rig.stop_switch();
    // Both ends at one guest; both at the host; the same addresses as another connection.
    for (number, ends) in
        [(2, [3 << 32 | 1, 3 << 32 | 2]), (3, [2 << 32 | 1, 2 << 32 | 2]), (4, [2 << 32, 3 << 32])]
    {
        rig.write_connection(number, 0, u64::MAX);
        rig.write_connection(number, 1, ends[0]);
        rig.write_connection(number, 2, ends[1]);
    }
    rig.write_connection(0, 1, u64::MAX);
    rig.replace_switch(streams);
    rig.settle();
    rig.check();
    assert_eq!(rig.count(0, SocketWord::Connections), 1);
}
