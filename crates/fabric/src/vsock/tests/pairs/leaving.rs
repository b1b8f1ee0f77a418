//! Programs that leave their channels while the connection goes on: no byte is lost, and none comes
//! out of order.

use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::{Status, Word};
use taut_virtq::socket_header::*;

use super::super::model::Chance;
use super::super::rig::*;
use super::peers::{Exchange, Peer, connect, connect_to_host, stream};
use super::program::{Program, ops_for};
use super::*;
use crate::vsock::VsockEvent;

/// The other end of the connection of an end that is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    Ring,
    Packets,
    Host,
}

pub(super) const OTHERS: [Other; 3] = [Other::Ring, Other::Packets, Other::Host];

/// Opens a connection of which the first end is attached.
pub(super) fn attached(rig: &mut Rig, other: Other) -> (Peer, Peer) {
    let (a, b) = if other == Other::Host { connect_to_host(rig, 5000) } else { connect(rig, 0, 1, 5000) };
    let b = if other == Other::Ring { b.attach(rig) } else { b };
    (a.attach(rig), b)
}

/// Reads until nothing more comes, with time passing.
pub(super) fn read_all(rig: &mut Rig, peer: &mut Peer) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..60 {
        rig.now += Duration::from_micros(100);
        rig.settle();
        all.extend(peer.read(rig, 1 << 20));
    }
    rig.check();
    all
}

/// Writes all bytes, or as many as are taken while time passes.
pub(super) fn write_all(rig: &mut Rig, peer: &mut Peer, bytes: &[u8]) -> usize {
    let mut written = 0;
    for _ in 0..60 {
        written += peer.write(rig, &bytes[written..]);
        rig.now += Duration::from_micros(100);
        rig.settle();
    }
    rig.check();
    written
}

/// Number of channels in use.
pub(super) fn channels(rig: &Rig) -> usize {
    rig.switch.pairs.ends().count()
}

/// An exchange in whose course ends leave their channels, and may attach again.
fn exchange_with_leaves(other: Other, seed: u64, mut between: impl FnMut(&mut Rig, &mut Chance)) {
    let mut rig = rig_with(2, &[0, 1]);
    let (mut a, mut b) = attached(&mut rig, other);
    let mut chance = Chance(seed);
    let mut exchange = Exchange::new(seed, 300_000);
    let mut leaves = 0;
    for turn in 0.. {
        assert!(turn < 100_000, "{other:?}, seed {seed}: the bytes do not arrive");
        if exchange.step(&mut rig, &mut a, &mut b) {
            break;
        }
        between(&mut rig, &mut chance);
        for peer in [&mut a, &mut b] {
            if chance.below(8) > 0 || rig.drivers.iter_mut().any(|driver| driver.outstanding() > 40) {
                continue;
            }
            let taken =
                std::mem::replace(peer, Peer::Socket(std::os::unix::net::UnixStream::pair().unwrap().0));
            *peer = match taken {
                Peer::Ring(_) => {
                    leaves += 1;
                    taken.leave(&mut rig)
                }
                Peer::Packets(mut kernel) => {
                    // What came by packets is read before the ring.
                    match Program::try_attach(&mut rig, kernel.own) {
                        Ok(mut program) => {
                            kernel.take_in(&mut rig);
                            let is_empty = kernel.is_empty();
                            program.kernel = Some(kernel);
                            let end = Peer::Ring(Box::new(program));
                            if is_empty { end } else { end.leave(&mut rig) }
                        }
                        Err(refusal) => {
                            assert_eq!(refusal, Status::AttachedAlready);
                            Peer::Packets(kernel)
                        }
                    }
                }
                socket @ Peer::Socket(_) => socket,
            };
        }
    }
    assert!(leaves > 0, "{other:?}, seed {seed}");
    for peer in [a, b] {
        if let Peer::Ring(_) = peer {
            peer.leave(&mut rig);
        }
    }
    rest(&mut rig);
    assert_eq!(channels(&rig), 0, "{other:?}, seed {seed}: a channel is still in use");
    for word in [SocketWord::Resets, SocketWord::Malformed] {
        assert_eq!([0, 1].map(|guest| rig.count(guest, word)), [0, 0]);
    }
}

#[test]
fn an_exchange_in_which_ends_leave_and_attach_again_loses_nothing() {
    for other in OTHERS {
        for seed in 0..8 {
            exchange_with_leaves(other, seed, |_, _| {});
        }
    }
}

#[test]
fn nor_does_it_under_other_switches_and_while_guests_pause() {
    for other in OTHERS {
        for seed in 0..8 {
            exchange_with_leaves(other, seed, |rig, chance| match chance.below(12) {
                0 => {
                    let sockets = rig.stop_switch();
                    rig.replace_switch(sockets);
                    rig.check();
                }
                1 => rig.pause(chance.below(2)),
                2 => rig.replace_switch_while_paused(chance.below(2)),
                _ => {}
            });
        }
    }
}

#[test]
fn unread_bytes_stay_in_the_ring_until_the_guest_takes_them() {
    for other in OTHERS {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) = attached(&mut rig, other);
        let bytes = stream(1, 2 * RING);
        let mut written = write_all(&mut rig, &mut b, &bytes);
        assert!(written >= RING, "{other:?}: {written}");
        let mut got = a.read(&mut rig, 1000);
        // The guest has no room for what returns.
        let own = a.program().own;
        rig.send_control(Own { taken: ALLOC.wrapping_neg(), ..own }, CREDIT_UPDATE, 0);
        let mut a = a.leave(&mut rig);
        written += write_all(&mut rig, &mut b, &bytes[written..]);
        assert_eq!(channels(&rig), 1 + usize::from(other == Other::Ring));
        let spilled: usize = rig
            .switch
            .table
            .iter()
            .map(|(_, connection)| {
                connection
                    .flows
                    .iter()
                    .filter_map(|flow| flow.spill.as_ref())
                    .map(|spill| spill.len())
                    .sum::<usize>()
            })
            .sum();
        assert!(spilled <= 64 << 10, "{other:?}: {spilled} bytes were copied aside");
        rig.send_control(own, CREDIT_UPDATE, 0);
        let count = got.len();
        got.extend(read_all(&mut rig, &mut a));
        assert!(got.len() > count);
        while written < bytes.len() {
            written += write_all(&mut rig, &mut b, &bytes[written..]);
            got.extend(read_all(&mut rig, &mut a));
        }
        assert!(got == bytes, "{other:?}: {} of {}", got.len(), bytes.len());
        assert_eq!(channels(&rig), usize::from(other == Other::Ring));
        // Now the end may be attached again.
        Program::attach(&mut rig, own);
    }
}

#[test]
fn an_end_whose_rings_are_not_empty_cannot_be_attached_again() {
    let mut rig = rig_with(2, &[0]);
    let (a, mut b) = attached(&mut rig, Other::Packets);
    assert_eq!(b.write(&mut rig, b"unread"), 6);
    rest(&mut rig);
    // The guest has no credit for what returns.
    let own = Own { taken: ALLOC.wrapping_neg(), ..rig.ends(0, 1, 5000).0 };
    rig.send_control(own, CREDIT_UPDATE, 0);
    let mut a = a.leave(&mut rig);
    rest(&mut rig);
    let own = a.kernel().own;
    assert_eq!(Program::try_attach(&mut rig, own).err(), Some(Status::AttachedAlready));
    assert_eq!(channels(&rig), 1);
    rig.send_control(own, CREDIT_UPDATE, 0);
    assert_eq!(read_all(&mut rig, &mut a), b"unread");
    Program::attach(&mut rig, own);
}

#[test]
fn bytes_of_the_ring_go_between_the_packets_before_it_and_those_after_it() {
    for other in OTHERS {
        let mut rig = rig_with(2, &[0, 1]);
        let (mut a, mut b) = if other == Other::Host {
            connect_to_host(&mut rig, 5000)
        } else {
            connect(&mut rig, 0, 1, 5000)
        };
        if other == Other::Ring {
            b = b.attach(&mut rig);
        }
        let bytes = stream(7, 1 << 20);
        // The peer reads nothing: packets of the guest are left in its ring.
        let mut sent = 0;
        for _ in 0..200 {
            let end = bytes.len().min(sent + 3000);
            sent += a.write(&mut rig, &bytes[sent..end]);
            rig.now += Duration::from_micros(100);
            rig.settle();
        }
        let by_packets = sent;
        a = a.attach(&mut rig);
        sent += a.write(&mut rig, &bytes[sent..sent + 50_000]);
        rig.settle();
        sent += a.write(&mut rig, &bytes[sent..sent + 10_000]);
        // All of this is in the guest's ring before the fabric looks.
        a = a.leave(&mut rig);
        let more = a.write(&mut rig, &bytes[sent..sent + 100]);
        sent += more;
        rig.settle();
        rig.check();
        let sockets = rig.stop_switch();
        rig.replace_switch(sockets);
        rest(&mut rig);
        let mut got = Vec::new();
        for _ in 0..40 {
            got.extend(b.read(&mut rig, 20_000));
            let end = bytes.len().min(sent + 5000);
            sent += a.write(&mut rig, &bytes[sent..end]);
            rig.now += Duration::from_micros(100);
            rig.settle();
            rig.check();
        }
        got.extend(read_all(&mut rig, &mut b));
        assert!(got == bytes[..sent], "{other:?}: {} of {sent} bytes", got.len());
        assert!(by_packets > 0 && sent > by_packets + 60_000, "{other:?}: {by_packets}, {sent}");
        assert_eq!(channels(&rig), usize::from(other == Other::Ring));
    }
}

#[test]
fn a_position_that_is_not_possible_at_the_leave_resets_with_the_reason() {
    for word in [Word::InTail, Word::OutHead, Word::OutEnd] {
        for other in OTHERS {
            let mut rig = rig_with(2, &[0, 1]);
            let (mut a, mut b) = attached(&mut rig, other);
            assert_eq!(b.write(&mut rig, &stream(1, 1000)), 1000);
            rest(&mut rig);
            rig.switch.events.clear();
            let channel = a.program().channel().clone();
            channel.store(word, channel.load(word).wrapping_sub(RING as u32 + 1));
            let own = a.program().own;
            a.leave(&mut rig);
            rest(&mut rig);
            assert_eq!(ops_for(&mut rig, own), [RST], "{word:?} {other:?}");
            assert_eq!([0, 1].map(|guest| rig.count(guest, SocketWord::Malformed)), [1, 0]);
            let told = std::mem::take(&mut rig.switch.events);
            assert!(
                matches!(&told[..], [VsockEvent::Violation { port, what }]
                    if port.0 == 3 && what.contains("queue pair")),
                "{told:?}"
            );
            assert_eq!(channels(&rig), usize::from(other == Other::Ring));
        }
    }
}

#[test]
fn words_that_change_after_the_leave_move_no_bytes_of_others() {
    let mut rig = rig_with(2, &[0]);
    let (mut a, mut b) = attached(&mut rig, Other::Packets);
    let bytes = stream(1, 30_000);
    assert_eq!(write_all(&mut rig, &mut b, &bytes), bytes.len());
    let channel = a.program().channel().clone();
    rig.drivers[0].stuck = true;
    let mut a = a.leave(&mut rig);
    rig.settle();
    for (turn, word) in [Word::InTail, Word::InHead, Word::InEnd].into_iter().enumerate() {
        channel.store(word, 0x7654_3210 + turn as u32);
    }
    rig.drivers[0].stuck = false;
    assert!(read_all(&mut rig, &mut a) == bytes);
    Exchange::new(1, 50_000).run(&mut rig, &mut a, &mut b);
    assert_eq!((channels(&rig), rig.count(0, SocketWord::Malformed)), (0, 0));
}

#[test]
fn many_that_leave_at_once_take_turns_and_use_no_memory() {
    let mut rig = rig_with(2, &[0, 1]);
    let (mut quiet_a, mut quiet_b) = connect(&mut rig, 0, 1, 4000);
    let mut all = Vec::new();
    for port in 5000..5020 {
        let (a, b) = connect(&mut rig, 0, 1, port);
        let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
        let bytes = stream(port.into(), RING / 2);
        assert_eq!(b.write(&mut rig, &bytes), bytes.len());
        assert_eq!(a.write(&mut rig, &bytes), bytes.len());
        all.push((a, b, bytes));
        rest(&mut rig);
    }
    let mut all: Vec<_> = all.into_iter().map(|(a, b, bytes)| (a.leave(&mut rig), b, bytes)).collect();
    // Another connection of both guests has its turns meanwhile.
    quiet_b.write(&mut rig, b"hello");
    let mut steps = 0;
    while quiet_a.read(&mut rig, 100) != b"hello" {
        rig.step();
        steps += 1;
        assert!(steps < 50);
    }
    for (a, b, bytes) in &mut all {
        assert!(read_all(&mut rig, a) == *bytes && read_all(&mut rig, b) == *bytes);
    }
    assert_eq!(channels(&rig), 20);
    Exchange::new(1, 20_000).run(&mut rig, &mut quiet_a, &mut quiet_b);
}
