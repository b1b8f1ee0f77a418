//! Ends of streams of which a program leaves its channel: shutdowns that are on their way, and
//! programs that die.

use std::io::Read as _;
use std::net::Shutdown;
use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::{End, Word};
use taut_virtq::socket_header::*;

use super::super::rig::*;
use super::leaving::{OTHERS, Other, attached, channels, read_all, write_all};
use super::peers::{Peer, stream};
use super::program::{ops_for, take_for};
use super::*;
use crate::vsock::queue_pair::MAX_DRAIN;

/// Has the peer send no more, in its way.
fn shut(rig: &mut Rig, peer: &mut Peer) {
    match peer {
        Peer::Ring(program) => {
            program.ends.producer.finish(End::Finished);
            program.bell(rig);
        }
        Peer::Packets(kernel) => rig.send_control(kernel.own, SHUTDOWN, SHUTDOWN_SEND),
        Peer::Socket(stream) => stream.shutdown(Shutdown::Write).unwrap(),
    }
    rest(rig);
}

#[test]
fn a_half_close_of_the_peer_comes_after_what_was_not_read() {
    for other in OTHERS {
        for upgraded in [false, true] {
            let mut rig = rig_with(2, &[0, 1]);
            let (mut a, mut b) = attached(&mut rig, other);
            let bytes = stream(1, 20_000);
            assert_eq!(write_all(&mut rig, &mut b, &bytes), bytes.len());
            shut(&mut rig, &mut b);
            let mut got = a.read(&mut rig, 5000);
            rest(&mut rig);
            // A kernel that knew of the end would take no more.
            let own = a.program().own;
            assert_eq!(a.program().ends.consumer.look().unwrap().end, End::Finished);
            assert!(ops_for(&mut rig, own).is_empty(), "{other:?}");
            let mut a = a.leave(&mut rig);
            if upgraded {
                rig.drivers[0].stuck = true;
                rig.settle();
                let sockets = rig.stop_switch();
                rig.replace_switch(sockets);
                rig.drivers[0].stuck = false;
            }
            let mut flags = Vec::new();
            for _ in 0..60 {
                rig.now += Duration::from_micros(100);
                rig.settle();
                for (header, payload) in take_for(&mut rig, own) {
                    assert!(flags.is_empty() || header.op != RW, "bytes behind the end");
                    got.extend(payload);
                    if header.op == SHUTDOWN {
                        flags.push(header.flags);
                    }
                }
            }
            assert!(got == bytes, "{other:?}: {} bytes", got.len());
            assert_eq!(flags, [SHUTDOWN_SEND], "{other:?}");
            // The other direction goes on.
            a.kernel().own.taken = got.len() as u32 - 5000;
            assert_eq!(write_all(&mut rig, &mut a, b"answer"), 6);
            assert_eq!(read_all(&mut rig, &mut b), b"answer");
            assert_eq!(channels(&rig), usize::from(other == Other::Ring));
        }
    }
}

#[test]
fn a_close_of_the_peer_comes_after_what_was_not_read() {
    for of_ring in [false, true] {
        let mut rig = rig_with(2, &[0, 1]);
        let (a, mut b) = attached(&mut rig, if of_ring { Other::Ring } else { Other::Packets });
        let bytes = stream(1, 20_000);
        assert_eq!(write_all(&mut rig, &mut b, &bytes), bytes.len());
        let peer = rig.ends(0, 1, 5000).1;
        rig.send_control(peer, SHUTDOWN, SHUTDOWN_SEND | SHUTDOWN_RCV);
        rest(&mut rig);
        let own = rig.ends(0, 1, 5000).0;
        // The guest learns at once that the peer takes no more.
        let told: Vec<_> =
            take_for(&mut rig, own).into_iter().filter(|(header, _)| header.op == SHUTDOWN).collect();
        assert_eq!(told.iter().map(|(header, _)| header.flags).collect::<Vec<_>>(), [SHUTDOWN_RCV]);
        let mut a = a.leave(&mut rig);
        assert!(read_all(&mut rig, &mut a) == bytes);
        assert_eq!(a.kernel().ops, [SHUTDOWN]);
        rig.send_control(own, RST, 0);
        rest(&mut rig);
        if let Peer::Ring(program) = &b {
            program.close_control(&mut rig);
        }
        rest(&mut rig);
        assert_eq!((channels(&rig), rig.count(0, SocketWord::Connections)), (0, 0));
    }
}

#[test]
fn the_end_is_told_once_the_ring_was_read() {
    for other in OTHERS {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) = attached(&mut rig, other);
        let bytes = stream(1, 30_000);
        assert_eq!(write_all(&mut rig, &mut b, &bytes), bytes.len());
        shut(&mut rig, &mut b);
        let own = a.program().own;
        for _ in 0..3 {
            rest(&mut rig);
            assert_eq!(a.read(&mut rig, 10_000 - 1).len(), 10_000 - 1);
            rig.settle();
            assert!(ops_for(&mut rig, own).is_empty(), "{other:?}");
        }
        // The fabric does not look any more, and has asked for a bell.
        rest(&mut rig);
        assert!(a.program().channel().load(Word::InRoomWait) % 2 == 1);
        assert_eq!(a.read(&mut rig, 10_000).len(), 3);
        rig.settle();
        assert_eq!(ops_for(&mut rig, own), [SHUTDOWN], "{other:?}");
    }
}

#[test]
fn an_end_that_has_shut_its_own_side_by_the_word_leaves() {
    for other in OTHERS {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) = attached(&mut rig, other);
        rest(&mut rig);
        // The fabric does not look, and the bell is not rung.
        let program = a.program();
        assert_eq!(program.ends.producer.write(b"question").unwrap(), 8);
        program.ends.producer.finish(End::Finished);
        let mut a = a.leave(&mut rig);
        rest(&mut rig);
        if let Peer::Socket(stream) = &mut b {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"question");
        } else {
            assert_eq!(read_all(&mut rig, &mut b), b"question");
        }
        match &mut b {
            Peer::Ring(program) => assert_eq!(program.ends.consumer.look().unwrap().end, End::Finished),
            Peer::Packets(kernel) => assert_eq!(kernel.ops, [SHUTDOWN]),
            Peer::Socket(_) => {}
        }
        assert_eq!(write_all(&mut rig, &mut b, b"answer"), 6);
        assert_eq!(read_all(&mut rig, &mut a), b"answer");
        assert_eq!(rig.count(0, SocketWord::Malformed), 0);
    }
}

#[test]
fn a_program_that_has_died_gets_nothing_back_and_its_bytes_arrive() {
    for other in OTHERS {
        for main_first in [false, true] {
            let mut rig = rig_with(2, &[0, 1]);
            let (mut a, mut b) = attached(&mut rig, other);
            assert_eq!(write_all(&mut rig, &mut b, &stream(2, 20_000)), 20_000);
            rest(&mut rig);
            let last = stream(1, 30_000);
            assert_eq!(a.program().ends.producer.write(&last).unwrap(), last.len());
            a.program().ends.producer.publish();
            let (own, program) = (a.program().own, a.program());
            if main_first {
                program.close(&mut rig);
                program.close_control(&mut rig);
            } else {
                program.close_control(&mut rig);
                program.close(&mut rig);
            }
            rig.step();
            let mut got = Vec::new();
            if let Peer::Socket(stream) = &mut b {
                rest(&mut rig);
                let _ = stream.read_to_end(&mut got);
            } else {
                got = read_all(&mut rig, &mut b);
            }
            assert!(got == last, "{other:?}: {} bytes", got.len());
            let returned: usize = take_for(&mut rig, own).iter().map(|(_, bytes)| bytes.len()).sum();
            assert_eq!(returned, 0, "{other:?}");
            assert_eq!(channels(&rig), usize::from(other == Other::Ring));
        }
    }
}

#[test]
fn a_program_that_goes_on_may_have_a_peer_that_takes_its_time() {
    let mut rig = rig_with(2, &[0, 1]);
    let (mut a, mut b) = attached(&mut rig, Other::Ring);
    let bytes = stream(1, 2 * RING);
    let written = write_all(&mut rig, &mut a, &bytes);
    assert_eq!(written, bytes.len());
    let mut a = a.leave(&mut rig);
    for _ in 0..5 {
        rig.now += MAX_DRAIN;
        rest(&mut rig);
    }
    assert_eq!(channels(&rig), 2);
    // Only once the guest closes the connection, the time is limited.
    let own = a.kernel().own;
    rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND | SHUTDOWN_RCV);
    rest(&mut rig);
    rig.now += MAX_DRAIN / 2;
    rest(&mut rig);
    assert_eq!(channels(&rig), 2);
    assert_eq!(b.read(&mut rig, 1000), bytes[..1000]);
    rig.now += MAX_DRAIN / 2;
    rest(&mut rig);
    assert_eq!(b.program().ends.consumer.look().unwrap().end, End::Reset);
    assert_eq!(channels(&rig), 1);
}
