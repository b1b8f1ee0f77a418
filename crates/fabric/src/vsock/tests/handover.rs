//! Handover to another switch: after an orderly stop it goes on with everything, after a kill it
//! knows which connections and rings there were.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::{set_socket_oobinline, set_socket_send_buffer_size, socket_oobinline};
use taut_api::fabric::PortId;
use taut_api::fabric::counters::SocketWord;
use taut_virtq::Start;
use taut_virtq::socket_header::*;

use super::host::{client, listen};
use super::rig::*;
use crate::sys::epoll::EventFlags;
use crate::vsock::VsockEvent;
use crate::vsock::proto::{ConnId, GuestIdx};

#[test]
fn after_an_orderly_stop_every_byte_arrives_once() {
    let mut rig = rig(&[&["d"], &["d"], &["d"]], 3000);
    let (a, mut b) = rig.connect(0, 1, 5000);
    let (c, mut d) = rig.connect(0, 2, 5001);
    let (mut sent, mut got_b, mut got_d) = (0, Vec::new(), Vec::new());
    for turn in 0..40_usize {
        // One receiver is slow, so that packets are in flight out of order and partly delivered.
        rig.drivers[1].stuck = !turn.is_multiple_of(5);
        if got_b.len() + (200 << 10) > sent && rig.drivers[0].outstanding() < 50 {
            let len = 1 + turn * 977 % 30_000;
            rig.write(a, &pattern(sent, len));
            rig.write(c, &pattern(sent, len));
            sent += len;
        }
        (0..turn % 4).for_each(|_| _ = rig.step());
        let streams = rig.switch.stop();
        rig.replace_switch(streams);
        got_b.extend(rig.read(&mut b));
        got_d.extend(rig.read(&mut d));
        rig.send_control(b, CREDIT_UPDATE, 0);
        rig.send_control(d, CREDIT_UPDATE, 0);
        rig.step();
        rig.drivers[0].inbox.clear();
    }
    rig.drivers[1].stuck = false;
    rig.settle();
    got_b.extend(rig.read(&mut b));
    got_d.extend(rig.read(&mut d));
    assert!(got_b == pattern(0, sent) && got_d == pattern(0, sent), "{} {} {sent}", got_b.len(), got_d.len());
    rig.drivers[0].inbox.clear();
    assert_eq!(rig.drivers[0].outstanding(), 0);
    assert_eq!((rig.count(0, SocketWord::Connections), rig.count(0, SocketWord::Resets)), (2, 0));
    // A reset ends a connection as before.
    rig.send_control(a, RST, 0);
    rig.settle();
    assert_eq!(rig.ops(1), [RST]);
}

#[test]
fn pending_control_packets_are_delivered_by_the_next_switch() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    let (a, b) = rig.ends(0, 1, 5000);
    rig.drivers[1].stuck = true;
    rig.send_control(a, REQUEST, 0);
    rig.step();
    let streams = rig.switch.stop();
    rig.replace_switch(streams);
    rig.drivers[1].stuck = false;
    rig.settle();
    assert_eq!(rig.ops(1), [REQUEST]);
    rig.send_control(b, RESPONSE, 0);
    rig.write(b, b"at once");
    rig.send_control(b, SHUTDOWN, SHUTDOWN_SEND);
    let streams = rig.switch.stop();
    rig.replace_switch(streams);
    rig.settle();
    assert_eq!(rig.ops(0), [RESPONSE, RW, SHUTDOWN]);
}

/// Payload that guest 0 sends in [`upgrade_behind_payload`].
const SENT: usize = 10 * 20_000;

/// Has guest 0 send payload and its end by this operation, and replaces the switch before guest 1
/// has got all of it. No ring runs yet.
fn upgrade_behind_payload(op: u16) -> Rig {
    let mut rig = rig(&[&["d"], &["d"]], 1000);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    (0..10).for_each(|at| rig.write(a, &pattern(at * 20_000, 20_000)));
    rig.send_control(a, op, SHUTDOWN_SEND);
    rig.settle();
    let streams = rig.switch.stop();
    rig.take_over(streams);
    rig.drivers[1].stuck = false;
    rig
}

/// Starts the rings of the guests in this order after such an upgrade. Guest 1 gets all payload,
/// and then the end.
fn end_waits_for_payload(op: u16, order: [usize; 2]) {
    let mut rig = upgrade_behind_payload(op);
    let (mut got, mut ends) = (Vec::new(), Vec::new());
    for guest in order {
        assert!(got.len() < SENT, "nothing is left in the ring of the sender");
        rig.start_both(guest, [Start::Recover; 2]);
        rig.settle();
        for (header, bytes) in rig.drivers[1].inbox.drain(..) {
            got.extend(bytes);
            ends.extend((header.op == op).then_some(got.len()));
        }
    }
    assert_eq!(ends, [SENT], "bytes before the end");
    assert!(got == pattern(0, SENT));
    assert_eq!(rig.drivers[0].outstanding(), 0);
}

#[test]
fn the_end_of_a_stream_waits_for_packets_whichever_ring_starts_first() {
    for op in [SHUTDOWN, RST] {
        for order in [[0, 1], [1, 0]] {
            end_waits_for_payload(op, order);
        }
    }
}

#[test]
fn a_sender_that_does_not_come_back_ends_what_waits_for_its_packets() {
    for goes_by_a_restart in [false, true] {
        let mut rig = upgrade_behind_payload(SHUTDOWN);
        rig.start_both(1, [Start::Recover; 2]);
        rig.settle();
        // A fabric that takes over before the ring has started still knows that it is to.
        let streams = rig.switch.stop();
        rig.take_over(streams);
        rig.start_both(1, [Start::Recover; 2]);
        rig.settle();
        assert!(!rig.ops(1).contains(&SHUTDOWN));
        if goes_by_a_restart {
            rig.restart(0);
        } else {
            rig.leave(0);
        }
        rig.settle();
        assert_eq!(rig.ops(1).last(), Some(&RST));
        assert_eq!(rig.count(1, SocketWord::Connections), 0);
    }
}

#[test]
fn a_program_on_the_host_gets_packets_of_a_ring_that_starts_later_before_the_end() {
    let mut rig = rig(&[&[]], 4096);
    let own = Own { guest: 0, port: 5000, peer: (2, 80), taken: 0 };
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    let (port, request, _) = rig.questions()[0];
    let (ours, mut program) = UnixStream::pair().unwrap();
    set_socket_send_buffer_size(&ours, 4096).unwrap();
    rig.answer(port, request, Some(ours.into()));
    let sent = 10 * 20_000;
    (0..10).for_each(|at| rig.write(own, &pattern(at * 20_000, 20_000)));
    rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
    rig.settle();
    let streams = rig.switch.stop();
    rig.take_over(streams);
    program.set_nonblocking(true).unwrap();
    let (mut got, mut ring_runs, mut ended) = (Vec::new(), false, false);
    for _ in 0..1000 {
        (0..64).for_each(|id| rig.switch.on_stream_event(ConnId(id), EventFlags::IN | EventFlags::OUT));
        rig.settle();
        match program.read_to_end(&mut got) {
            Ok(_) => {
                ended = true;
                break;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        if !std::mem::replace(&mut ring_runs, true) {
            assert!(got.len() < sent, "the ring of the sender is empty");
            rig.start_both(0, [Start::Recover; 2]);
        }
    }
    assert!(ended && got == pattern(0, sent), "{} of {sent}", got.len());
}

#[test]
fn after_a_kill_every_connection_is_reset_and_new_ones_work() {
    for steps in 0..12 {
        let mut rig = rig(&[&["d"], &["d"]], 1000);
        let (a, _) = rig.connect(0, 1, 5000);
        rig.connect(1, 0, 6000);
        rig.drivers[1].stuck = true;
        for at in 0..20 {
            rig.write(a, &pattern(at, 5000));
        }
        (0..steps).for_each(|_| _ = rig.step());
        // A killed switch writes nothing down.
        rig.replace_switch(Vec::new());
        rig.drivers[1].stuck = false;
        rig.settle();
        let resets = |ops: Vec<u16>| ops.iter().filter(|&&op| op == RST).count();
        let (first, second) = (rig.ops(0), rig.ops(1));
        // Each packet that the killed switch had not taken is answered by a reset of its own.
        assert!(resets(first) >= 2 && resets(second) == 2);
        assert_eq!(rig.drivers[0].outstanding(), 0);
        assert_eq!(rig.count(0, SocketWord::Connections), 0);
        rig.connect(0, 1, 5000);
    }
}

#[test]
fn a_ring_that_was_stopped_when_the_switch_was_killed_gets_its_packets_back_once() {
    let mut rig = rig(&[&["d"], &["d"]], 1000);
    let (a, _) = rig.connect(0, 1, 5000);
    rig.drivers[1].stuck = true;
    for at in 0..40 {
        rig.write(a, &pattern(at, 5000));
    }
    rig.settle();
    // One more packet is given back before these, because it belongs to no connection.
    rig.send_control(Own { port: 7, ..a }, RW, 0);
    rig.settle();
    let position = rig.stop(0, 1).unwrap();
    assert!(rig.drivers[0].outstanding() > 0);
    // Killed while the guest is paused.
    rig.take_over(Vec::new());
    rig.start(0, 0, Start::Recover).unwrap();
    rig.start(0, 1, Start::At(position)).unwrap();
    rig.drivers[1].stuck = false;
    rig.start_both(1, [Start::Recover; 2]);
    rig.settle();
    assert_eq!(rig.drivers[0].outstanding(), 0);
    // The switch after that one finds nothing in flight.
    rig.replace_switch(Vec::new());
    rig.settle();
    assert_eq!(rig.drivers[0].outstanding(), 0);
    for guest in [0, 1] {
        rig.ops(guest);
    }
    rig.connect(0, 1, 5001);
}

#[test]
fn connections_with_the_host_go_on_and_questions_are_asked_again() {
    let mut rig = rig(&[&[]], 4096);
    let asks = |rig: &mut Rig| {
        let news = std::mem::take(&mut rig.switch.events);
        let request = |news| match news {
            VsockEvent::HostConnect { request, .. } => Some(request),
            _ => None,
        };
        news.into_iter().find_map(request).expect("tautd is asked")
    };
    let mut own = Own { guest: 0, port: 5000, peer: (2, 1234), taken: 0 };
    rig.send_control(own, REQUEST, 0);
    rig.settle();
    asks(&mut rig);
    let streams = rig.switch.stop();
    rig.replace_switch(streams);
    let request = asks(&mut rig);
    let (ours, mut program) = UnixStream::pair().unwrap();
    rig.switch.host_connected(PortId(3), request, Some(ours.into()));
    rig.settle();
    assert_eq!(rig.ops(0), [RESPONSE]);
    rig.write(own, b"before");
    program.write_all(b"unread").unwrap();
    let streams = rig.switch.stop();
    assert_eq!(streams.len(), 1);
    rig.replace_switch(streams);
    (0..64).for_each(|id| rig.switch.on_stream_event(ConnId(id), EventFlags::IN | EventFlags::OUT));
    rig.settle();
    let mut bytes = [0; 6];
    program.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"before");
    assert_eq!(rig.read(&mut own), b"unread");
}

#[test]
fn sockets_that_an_earlier_version_accepted_keep_urgent_bytes() {
    let mut rig = rig(&[&[]], 4096);
    let listener = listen(&mut rig);
    let (_connected, own) = client(&mut rig, &listener);
    rig.send_control(own, RESPONSE, 0);
    rig.settle();
    // The second client has not named its port yet.
    let _waiting = UnixStream::connect_addr(&listener).unwrap();
    rig.switch.accept_clients(GuestIdx(0), rig.now);
    let sockets = rig.switch.stop();
    assert_eq!(sockets.len(), 2);
    for (_, socket) in &sockets {
        set_socket_oobinline(socket, false).unwrap();
    }
    rig.replace_switch(sockets);
    let sockets = rig.switch.stop();
    let set: Vec<_> = sockets.iter().map(|(_, socket)| socket_oobinline(socket).unwrap()).collect();
    assert_eq!(set, [true, true]);
}

#[test]
fn a_connection_that_is_over_ends_whatever_the_record_says_of_its_flows() {
    let mut rig = rig(&[&["d"], &["d"]], 4096);
    rig.connect(0, 1, 5000);
    let host = Own { guest: 0, port: 5001, peer: (2, 80), taken: 0 };
    rig.send_control(host, REQUEST, 0);
    rig.settle();
    let streams = rig.switch.stop();
    for connection in [1, 2] {
        // The bits for a connection that exists and is over.
        rig.write_connection(connection, 0, 1 | 1 << 3);
    }
    rig.replace_switch(streams);
    rig.settle();
    assert_eq!((rig.ops(0), rig.ops(1)), (vec![RST, RST], vec![RST]));
    assert_eq!(rig.count(0, SocketWord::Connections), 0);
}
