//! A guest whose driver starts anew: nothing of its rings reaches anybody, whatever uses the
//! channels next.

use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::End;
use taut_virtq::Start;
use taut_virtq::socket_header::*;

use super::super::rig::*;
use super::peers::{Exchange, Peer, connect, stream};
use super::program::ops_for;
use super::*;
use crate::vsock::queue_pair::MAX_DRAIN;

/// Reads what a peer has got, with time passing.
fn read_all(rig: &mut Rig, peer: &mut Peer) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..20 {
        rig.now += Duration::from_micros(100);
        rig.settle();
        all.extend(peer.read(rig, 1 << 20));
    }
    all
}

#[test]
fn bytes_of_the_next_connection_of_a_channel_do_not_reach_the_former_peer() {
    for kind in 0..2 {
        for settled in [false, true] {
            let mut rig = rig_with(3, &[0, 1, 2]);
            let (a, mut former) = connect(&mut rig, 0, 1, 5000);
            let mut a = a.attach(&mut rig);
            if kind == 0 {
                former = former.attach(&mut rig);
            }
            a.write(&mut rig, b"before");
            assert_eq!(read_all(&mut rig, &mut former), b"before");
            // The former peer cannot be told of the end: it takes nothing.
            let position = rig.stop(1, 0).unwrap();
            a.program().ends.producer.write(b"left in the ring").unwrap();
            a.program().ends.producer.publish();
            rig.restart(0);
            if settled {
                rest(&mut rig);
            }
            // The next program of the guest gets the same channel, and talks to another guest.
            let used = a.program().answer.channel;
            let (mut next, mut other) = loop {
                let (next, mut other) = connect(&mut rig, 0, 2, 6000);
                let mut next = next.attach(&mut rig);
                if next.program().answer.channel == used {
                    break (next, other);
                }
                // Others are given first, so this one's turn comes after them.
                next.program().close(&mut rig);
                next.program().close_control(&mut rig);
                rest(&mut rig);
                let own = other.kernel().own;
                rig.send_control(own, RST, 0);
                rest(&mut rig);
                rig.drivers.iter_mut().for_each(|driver| driver.inbox.clear());
                drop(other);
            };
            let secret = stream(9, 3000);
            next.write(&mut rig, &secret);
            assert!(read_all(&mut rig, &mut other) == secret);
            rig.start(1, 0, Start::At(position)).unwrap();
            assert_eq!(read_all(&mut rig, &mut former), b"");
            if kind == 0 {
                let look = former.program().ends.consumer.look().unwrap();
                assert_eq!((look.bytes, look.end), (0, End::Reset));
                let own = former.program().own;
                assert_eq!(ops_for(&mut rig, own), [RST]);
            } else {
                assert_eq!(former.kernel().ops, [RST]);
            }
            // Nor does the former peer reach the next connection.
            former.write(&mut rig, &[0; 100]);
            Exchange::new(5, 100_000).run(&mut rig, &mut next, &mut other);
        }
    }
}

#[test]
fn a_receiver_that_starts_anew_gets_nothing_of_before() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    // The receiver's ring is full, and the sender's has more.
    for _ in 0..20 {
        a.write(&mut rig, &stream(1, 10_000));
        rig.now += Duration::from_micros(100);
        rig.settle();
    }
    let channel = b.program().channel().clone();
    rig.restart(1);
    let (c, d) = connect(&mut rig, 0, 1, 5001);
    let (mut c, mut d) = (c.attach(&mut rig), d.attach(&mut rig));
    rest(&mut rig);
    assert_eq!(a.program().ends.consumer.look().unwrap().end, End::Reset);
    assert_eq!(d.read(&mut rig, 100), b"");
    Exchange::new(1, 100_000).run(&mut rig, &mut c, &mut d);
    drop(channel);
    assert_eq!(rig.count(1, SocketWord::Connections), 2);
}

#[test]
fn after_any_end_of_all_guests_nothing_is_left() {
    for way in 0..3 {
        let mut rig = rig_with(2, &[0, 1]);
        for port in 5000..5020 {
            let (a, b) = connect(&mut rig, port as usize % 2, 1 - port as usize % 2, port);
            let mut a = a.attach(&mut rig);
            a.write(&mut rig, &stream(1, 1000));
            if port % 3 == 0 {
                let mut b = b.attach(&mut rig);
                b.write(&mut rig, &stream(1, 1000));
            }
        }
        rig.check();
        for guest in [0, 1] {
            match way {
                0 => rig.restart(guest),
                1 => {
                    rig.leave(guest);
                    rig.start_both(guest, [Start::At(0); 2]);
                }
                _ => {
                    assert_eq!(rig.configure(vec![]), 0);
                    rig.check();
                    assert_eq!(rig.configure(vec![device(3, &["d"]), device(4, &["d"])]), 0);
                    rig.restart(0);
                    rig.restart(1);
                }
            }
            rig.check();
        }
        rest(&mut rig);
        rig.check_nothing_left();
    }
}

#[test]
fn what_was_left_in_a_former_region_ends_no_connection_of_the_next_one() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, _b) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    // The peer takes nothing, so bytes are left when the program ends.
    rig.stop(1, 0).unwrap();
    a.write(&mut rig, b"left in the ring");
    a.program().close_control(&mut rig);
    a.program().close(&mut rig);
    rest(&mut rig);
    let former = a.program().answer.channel;

    // The guest's process is another one, with memory of its own.
    rig.give_region(0, REGION);
    rig.restart(1);
    let (c, d) = connect(&mut rig, 0, 1, 6000);
    let (mut c, mut d) = (c.attach(&mut rig), d.attach(&mut rig));
    assert_eq!(c.program().answer.channel, former);
    rig.now += MAX_DRAIN * 2;
    rest(&mut rig);
    Exchange::new(5, 100_000).run(&mut rig, &mut c, &mut d);
}
