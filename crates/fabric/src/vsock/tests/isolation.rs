//! Isolation: which guests may talk, forged sources, limits, and what one guest can do to others.

use std::time::Duration;

use taut_api::fabric::config::SocketConfig;
use taut_api::fabric::counters::SocketWord;
use taut_virtq::Start;
use taut_virtq::socket_header::*;

use super::rig::*;
use crate::vsock::VsockEvent;

#[test]
fn absent_and_forbidden_peers_are_refused_alike() {
    let mut rig = rig(&[&["d"], &["d"], &["other"], &[]], 4096);
    rig.connect(0, 1, 5000);
    for peer in [5, 6, 7, 3, 0, 1, u32::MAX] {
        rig.is_refused(Own { guest: 0, port: 6000, peer: (peer, 80), taken: 0 });
    }
    assert_eq!(rig.count(0, SocketWord::Refused), 7);
    // Context IDs of more than 32 bits are refused, too.
    let far = SocketHeader { dst_cid: 1 << 32 | 4, ..rig.header(rig.ends(0, 1, 6001).0, REQUEST) };
    assert!(rig.drivers[0].send(far, &[]));
    rig.settle();
    assert_eq!((rig.ops(0), rig.ops(1)), (vec![RST], vec![]));
}

#[test]
fn packets_of_no_connection_are_answered_by_a_reset_unless_they_are_resets() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, _) = rig.ends(0, 1, 5000);
    for op in [RW, RESPONSE, SHUTDOWN, CREDIT_UPDATE, CREDIT_REQUEST, 77, 0] {
        rig.send_control(a, op, 0);
        rig.settle();
        assert_eq!((rig.ops(0), rig.ops(1)), (vec![RST], vec![]), "{op}");
    }
    rig.send_control(a, RST, 0);
    rig.settle();
    assert_eq!((rig.ops(0), rig.ops(1)), (vec![], vec![]));
    let strange = SocketHeader { kind: 3, ..rig.header(a, REQUEST) };
    assert!(rig.drivers[0].send(strange, &[]));
    rig.settle();
    let (header, _) = rig.next(0);
    assert_eq!((header.op, header.kind), (RST, 3));
}

#[test]
fn packets_with_a_forged_source_are_dropped_and_counted_and_rarely_reported() {
    let mut rig = rig(&[&["d"], &["d"], &["d"]], 4096);
    let (a, b) = rig.connect(0, 1, 5000);
    for _ in 0..5 {
        // A packet that claims to be from guest 0, on its connection.
        let forged = rig.header(a, RW);
        assert!(rig.drivers[2].send(forged, b"evil"));
        let high = SocketHeader { src_cid: 1 << 32 | 5, ..rig.header(b, RW) };
        assert!(rig.drivers[2].send(high, b"evil"));
    }
    rig.settle();
    assert!(rig.drivers.iter().all(|driver| driver.inbox.is_empty()));
    assert_eq!(rig.count(2, SocketWord::Forged), 10);
    let told = std::mem::take(&mut rig.switch.events);
    assert!(
        matches!(&told[..], [VsockEvent::Violation { port, what }] if port.0 == 5 && what.contains("context ID 3"))
    );
    assert_eq!(rig.drivers[2].outstanding(), 0);
}

#[test]
fn connections_that_a_new_configuration_forbids_are_reset_at_once() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    rig.connect(0, 1, 5000);
    assert_eq!(rig.configure(vec![device(3, &["d"]), device(4, &["e"])]), 0);
    rig.settle();
    assert_eq!((rig.ops(0), rig.ops(1)), (vec![RST], vec![RST]));
}

#[test]
fn limits_of_connections_hold_and_refusals_are_counted() {
    let mut few = device(3, &["d"]);
    (few.connections, few.half_open) = (3, 2);
    let mut rig = rig_of(vec![few, device(4, &["d"])], 4096);
    let asked: Vec<_> = (5000..5003).map(|port| rig.ends(0, 1, port)).collect();
    for (own, _) in &asked {
        rig.send_control(*own, REQUEST, 0);
    }
    rig.settle();
    assert_eq!((rig.ops(1), rig.ops(0)), (vec![REQUEST; 2], vec![RST]), "too many half-open ones");
    for (_, other) in &asked[..2] {
        rig.send_control(*other, RESPONSE, 0);
    }
    rig.settle();
    rig.ops(0);
    rig.connect(0, 1, 5005);
    rig.is_refused(rig.ends(0, 1, 5006).0);
    assert_eq!((rig.count(0, SocketWord::Limited), rig.count(0, SocketWord::Connections)), (2, 3));
    // Requests from the other side count to its own limit.
    let own = Own { guest: 1, port: 1, peer: (3, 80), taken: 0 };
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    assert_eq!((rig.ops(0), rig.count(1, SocketWord::Limited)), (vec![REQUEST], 0));
}

#[test]
fn a_peer_that_announces_much_and_takes_nothing_leaves_room_for_other_connections() {
    let mut rig = rig(&[&["d"], &["d"], &["d"]], 4096);
    let open = |rig: &mut Rig, to, port, buf_alloc| {
        let (a, b) = rig.ends(0, to, port);
        rig.send_control(a, REQUEST, 0);
        rig.settle();
        rig.ops(to);
        let response = SocketHeader { buf_alloc, ..rig.header(b, RESPONSE) };
        assert!(rig.drivers[to].send(response, &[]));
        rig.settle();
        let (header, _) = rig.next(0);
        assert_eq!(header.op, RESPONSE);
        (a, b, header.buf_alloc)
    };
    let hostile: Vec<_> = (5000..5020).map(|port| open(&mut rig, 1, port, u32::MAX)).collect();
    let (a, mut b, _) = open(&mut rig, 2, 6000, ALLOC);
    rig.drivers[1].stuck = true;
    let promised: u32 = hostile.iter().map(|(.., promised)| promised).sum();
    assert!(promised <= 20 * (16 << 10), "{promised} bytes");
    // The sender's kernel sends no more than it was promised.
    for (own, _, promised) in &hostile {
        let len = (*promised).min(64 << 10) as usize;
        rig.write(*own, &pattern(0, len));
        rig.settle();
    }
    for turn in 0..100 {
        rig.write(a, &pattern(turn, 3000));
        rig.settle();
        assert!(rig.read(&mut b) == pattern(turn, 3000), "turn {turn}");
        rig.send_control(b, CREDIT_UPDATE, 0);
        rig.settle();
    }
}

#[test]
fn a_guest_with_many_connections_that_rest_is_still_sent_long_messages_in_one_go() {
    let of = |number| SocketConfig { connections: 500, ..device(number, &["d"]) };
    let mut rig = rig_of([3, 4, 5].map(of).into(), 4096);
    for port in 5000..5400 {
        rig.connect(0, 1, port);
    }
    let (mut a, b) = rig.connect(0, 2, 6000);
    let promised = |rig: &mut Rig, a: &mut Own| {
        rig.write(b, &[1; 10_000]);
        rig.settle();
        assert_eq!(rig.read(a).len(), 10_000);
        rig.send_control(*a, CREDIT_UPDATE, 0);
        rig.settle();
        rig.drivers[2].inbox.drain(..).map(|(header, _)| header.buf_alloc).next_back()
    };
    let told: Vec<_> = (0..20).filter_map(|_| promised(&mut rig, &mut a)).collect();
    assert!(told.last().is_some_and(|&told| told >= 64 << 10), "{told:?}");
}

#[test]
fn small_packets_for_a_peer_that_takes_nothing_are_copied_out_of_the_ring() {
    for own_type in [STREAM, SEQPACKET] {
        let mut rig = rig(&[&["d"], &["d"], &["d"]], 2000);
        let (to_stuck, stuck) = rig.connect_as(own_type, 0, 1, 5000);
        let (a, mut b) = rig.connect(0, 2, 5001);
        rig.drivers[1].stuck = true;
        let mut sent = 0;
        let mut write = |rig: &mut Rig, len| {
            let header = SocketHeader { kind: own_type, flags: 0, ..rig.header(to_stuck, RW) };
            assert!(rig.drivers[0].send(header, &pattern(sent, len)), "the ring is full");
            sent += len;
        };
        // Fills the receiver's 64 buffers.
        for _ in 0..64 {
            write(&mut rig, 10);
            rig.settle();
        }
        for turn in 0..30 {
            (0..20).for_each(|_| write(&mut rig, 25));
            rig.write(a, &pattern(turn, 3000));
            rig.settle();
            assert!(rig.read(&mut b) == pattern(turn, 3000), "turn {turn}");
            rig.send_control(b, CREDIT_UPDATE, 0);
            rig.now += Duration::from_millis(2);
            rig.settle();
            match turn {
                10 => rig.pause(0),
                15 | 20 => {
                    let streams = rig.switch.stop();
                    rig.replace_switch(streams);
                }
                _ => {}
            }
        }
        rig.drivers[1].stuck = false;
        for _ in 0..3 {
            rig.settle();
            rig.now += Duration::from_millis(2);
        }
        let got: Vec<u8> = rig.drivers[1].inbox.drain(..).flat_map(|(_, bytes)| bytes).collect();
        assert!(got == pattern(0, sent), "{} of {sent}", got.len());
        assert_eq!((rig.drivers[0].outstanding(), stuck.taken), (0, 0));
    }
}

#[test]
fn a_guest_that_takes_nothing_for_a_second_is_reported_once() {
    let mut rig = rig(&[&["d"], &["d"]], 2000);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    for _ in 0..70 {
        if rig.drivers[0].outstanding() < 5 {
            rig.write(a, &[7; 10]);
        }
        rig.settle();
    }
    let mut reports = || {
        rig.now += Duration::from_millis(600);
        rig.settle();
        let told = std::mem::take(&mut rig.switch.events);
        assert!(told.iter().all(|event| matches!(event, VsockEvent::TakesNothing { port } if port.0 == 4)));
        told.len()
    };
    assert_eq!([reports(), reports(), reports(), reports()], [0, 1, 0, 0]);
    assert_eq!(rig.count(1, SocketWord::Stalls), 1);
}

#[test]
fn a_guest_whose_buffers_one_round_fills_is_reported_each_time() {
    let mut rig = rig(&[&["d"], &["d"]], 2000);
    for port in [5000, 5001] {
        let (a, _) = rig.connect(0, 1, port);
        rig.drivers[1].stuck = true;
        rig.settle();
        // The guest has 64 buffers. The last packets fill them in one round, and none follows.
        for packets in [60, 10] {
            for _ in 0..packets {
                rig.write(a, &[7; 2000]);
            }
            rig.settle();
        }
        assert_eq!(rig.switch.events.len(), 0);
        rig.now += Duration::from_secs(1);
        rig.settle();
        assert!(matches!(rig.switch.events[..], [VsockEvent::TakesNothing { .. }]));
        rig.switch.events.clear();
        rig.drivers[1].stuck = false;
        rig.restart(1);
        rig.settle();
        // Late news of the connection that the restart has ended.
        rig.drivers.iter_mut().for_each(|driver| driver.inbox.clear());
    }
    assert_eq!(rig.count(1, SocketWord::Stalls), 2);
}

#[test]
fn a_guest_that_makes_room_without_a_kick_that_was_seen_is_reported_again() {
    let mut rig = rig(&[&["d"], &["d"]], 1000);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    let send = |rig: &mut Rig, packets: usize| {
        for _ in 0..packets {
            rig.write(a, &[7; 1000]);
            rig.settle();
        }
    };
    let reports = |rig: &mut Rig| {
        rig.now += Duration::from_secs(1);
        rig.settle();
        std::mem::take(&mut rig.switch.events).len()
    };
    // The guest has 64 buffers, and as many packets wait.
    send(&mut rig, 128);
    assert_eq!(reports(&mut rig), 1);
    // The guest takes what it was given. What waits fills its buffers before its kick is seen.
    rig.drivers[1].stuck = false;
    rig.drivers[1].receive();
    rig.drivers[1].stuck = true;
    let index = rig.index(1).unwrap();
    rig.switch.sched.turns.mark_busy(index);
    rig.switch.round(rig.now);
    assert_eq!(rig.drivers[0].outstanding(), 0);
    assert_eq!(reports(&mut rig), 0, "nothing waits");
    send(&mut rig, 1);
    assert_eq!(rig.switch.events.len(), 0, "the guest has had no buffers for less than a second");
    assert_eq!(reports(&mut rig), 1);
}

#[test]
fn guests_that_are_answered_by_many_resets_delay_no_other_receiver() {
    let mut rig = rig(&[&["d"], &["d"], &["d"], &["d"]], 4096);
    // Between two guests that send all the time, a third one is sent something.
    let (a, mut b) = rig.connect(1, 3, 5000);
    let mut got = Vec::new();
    for round in 0..20 {
        for flooder in [0, 2] {
            let (to_nobody, _) = rig.ends(flooder, 3, 6000);
            (0..64).for_each(|_| rig.write(to_nobody, b""));
        }
        rig.write(a, &pattern(round, 1));
        rig.step();
        rig.drivers[0].inbox.clear();
        rig.drivers[2].inbox.clear();
        got.extend(rig.read(&mut b));
        assert_eq!(got.len(), round + 1, "another receiver waits");
    }
    assert!((0..20).all(|round| got[round..=round] == pattern(round, 1)));
}

/// Connects two guests of which the second takes nothing, and has packets of the first wait.
fn starve(rig: &mut Rig) -> Own {
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    // The guest has 64 buffers.
    for _ in 0..2 {
        (0..40).for_each(|_| rig.write(a, &[7; 2000]));
        rig.settle();
    }
    a
}

/// Returns the number of reports after a second and a half.
fn reports(rig: &mut Rig) -> usize {
    rig.now += Duration::from_millis(1500);
    rig.settle();
    std::mem::take(&mut rig.switch.events).len()
}

#[test]
fn a_reported_guest_is_not_reported_again_for_a_pause_but_for_another_front_end() {
    let mut rig = rig(&[&["d"], &["d"]], 2000);
    starve(&mut rig);
    assert_eq!(reports(&mut rig), 1);
    rig.pause(1);
    assert_eq!([reports(&mut rig), reports(&mut rig)], [0, 0]);
    // The next front end continues the rings as they are: its guest has no buffer, either.
    let positions = [0, 1].map(|queue| rig.stop(1, queue).unwrap());
    rig.leave(1);
    rig.start_both(1, positions.map(Start::At));
    rig.settle();
    let (a, _) = rig.ends(0, 1, 5001);
    rig.send_control(a, REQUEST, 0);
    rig.settle();
    assert_eq!([reports(&mut rig), reports(&mut rig)], [1, 0]);
}

#[test]
fn a_guest_that_was_paused_has_a_second_from_then_on() {
    let mut rig = rig(&[&["d"], &["d"]], 2000);
    starve(&mut rig);
    let positions = [0, 1].map(|queue| rig.stop(1, queue).unwrap());
    assert_eq!(reports(&mut rig), 0);
    rig.start_both(1, positions.map(Start::At));
    rig.settle();
    assert_eq!(rig.switch.events.len(), 0);
    assert_eq!(reports(&mut rig), 1);
}

#[test]
fn a_guest_for_which_nothing_is_left_is_not_reported() {
    let mut rig = rig(&[&["d"], &["d"]], 2000);
    starve(&mut rig);
    let (_, b) = rig.ends(0, 1, 5000);
    rig.send_control(b, RST, 0);
    rig.settle();
    assert_eq!(rig.ops(0).last(), Some(&RST));
    assert_eq!(reports(&mut rig), 0);
    // The guest cannot cause a look with each packet: the next one is after a second.
    rig.send_control(rig.ends(1, 0, 9).0, RW, 0);
    rig.settle();
    assert!(rig.switch.sched.starving.next().is_some_and(|next| next > rig.now));
}

#[test]
fn a_ring_that_is_full_when_it_stops_is_relieved_when_it_is_back() {
    let mut rig = rig(&[&["d"], &["d"], &["d"]], 2000);
    let (to_stuck, _) = rig.connect(0, 1, 5000);
    let (a, mut b) = rig.connect(0, 2, 5001);
    rig.drivers[1].stuck = true;
    (0..64).for_each(|_| rig.write(to_stuck, &[7; 2000]));
    rig.settle();
    rig.ops(0);
    (0..64).for_each(|_| rig.write(to_stuck, &[7; 2000]));
    rig.step();
    assert_eq!(rig.drivers[0].outstanding(), 64);
    let positions = [0, 1].map(|queue| rig.stop(0, queue).unwrap());
    rig.now += Duration::from_millis(2);
    rig.settle();
    rig.start_both(0, positions.map(Start::At));
    // The start was at the time of the machine, not of the rig.
    rig.now += Duration::from_secs(5);
    rig.settle();
    rig.write(a, b"there is room");
    rig.settle();
    assert_eq!(rig.read(&mut b), b"there is room");
}

#[test]
fn connections_that_come_and_go_at_a_peer_that_takes_nothing_leave_nothing() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    rig.drivers[1].stuck = true;
    rig.settle();
    for turn in 0..3000 {
        let (a, _) = rig.ends(0, 1, 5000 + turn);
        rig.send_control(a, REQUEST, 0);
        rig.settle();
        rig.send_control(a, RST, 0);
        rig.settle();
    }
    let places = rig.switch.sched.turns.all().len();
    assert!(places < 400, "{places} places");
}

#[test]
fn an_unanswered_request_is_reset_for_both_sides() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, _) = rig.ends(0, 1, 5000);
    rig.send_control(a, REQUEST, 0);
    rig.settle();
    rig.ops(1);
    rig.now += Duration::from_secs(11);
    rig.settle();
    assert_eq!((rig.ops(0), rig.ops(1)), (vec![RST], vec![RST]));
    assert_eq!(rig.count(0, SocketWord::Connections), 0);
}

#[test]
fn payload_behind_a_control_packet_is_ignored() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, mut b) = rig.connect(0, 1, 5000);
    // A control packet with payload counts as one without.
    let header = SocketHeader { ..rig.header(a, CREDIT_UPDATE) };
    assert!(rig.drivers[0].send(header, &[1; 100]));
    rig.write(a, b"fine");
    rig.settle();
    assert_eq!(rig.read(&mut b), b"fine");
}

#[test]
fn a_guest_that_takes_nothing_delays_no_other_guest() {
    let mut rig = rig(&[&["d"], &["d"], &["d"]], 2000);
    let (to_stuck, mut stuck) = rig.connect(0, 1, 5000);
    let (a, mut b) = rig.connect(0, 2, 5001);
    rig.drivers[1].stuck = true;
    // The receiver has 64 buffers, one for each packet.
    for at in 0..4 {
        rig.write(to_stuck, &pattern(at << 16, 1 << 16));
    }
    for turn in 0..100 {
        rig.write(a, &pattern(turn, 3000));
        rig.settle();
        assert!(rig.read(&mut b) == pattern(turn, 3000), "turn {turn}");
        rig.send_control(b, CREDIT_UPDATE, 0);
        rig.settle();
        // Credit updates that the guest does not need may still be deferred.
        assert!(rig.ops(0).iter().all(|&op| op == CREDIT_UPDATE));
    }
    assert!(rig.drivers[0].outstanding() > 0);
    rig.drivers[1].stuck = false;
    rig.settle();
    assert!(rig.read(&mut stuck) == pattern(0, 4 << 16));
    assert_eq!(rig.drivers[0].outstanding(), 0);
}

#[test]
fn a_restarted_guest_has_no_connections_and_its_peers_get_resets() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    for at in 0..5 {
        rig.write(a, &pattern(at, 1 << 16));
    }
    rig.settle();
    rig.restart(0);
    rig.drivers[1].stuck = false;
    rig.settle();
    assert_eq!(rig.drivers[1].inbox.back().unwrap().0.op, RST);
    rig.ops(1);
    assert_eq!(rig.count(1, SocketWord::Connections), 0);
    rig.connect(0, 1, 5000);
}

#[test]
fn a_paused_guest_keeps_its_connections_and_its_packets() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (mut a, mut b) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    for at in 0..5 {
        rig.write(a, &pattern(at << 15, 1 << 15));
    }
    for _ in 0..3 {
        rig.step();
        rig.pause(0);
        rig.pause(1);
    }
    rig.drivers[1].stuck = false;
    rig.settle();
    assert!(rig.read(&mut b) == pattern(0, 5 << 15));
    rig.write(b, b"and back");
    rig.settle();
    assert_eq!(rig.read(&mut a), b"and back");
    assert_eq!(rig.drivers[0].outstanding(), 0);
}
