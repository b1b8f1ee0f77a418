//! Guests that write anything into the words of their channels: only their own connections fail.

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::{End, SERVICE_PORT, Word};
use taut_virtq::socket_header::*;

use super::super::model::Chance;
use super::super::rig::*;
use super::peers::{Exchange, Peer, connect, stream};
use super::program::{Program, take_for};
use super::*;
use crate::vsock::VsockEvent;

#[test]
fn impossible_words_reset_the_connection_with_the_reason() {
    for (word, value) in [
        (Word::OutHead, RING as u32 + 1),
        (Word::OutHead, u32::MAX),
        (Word::InTail, 1),
        (Word::InTail, u32::MAX / 2),
        (Word::OutEnd, 2),
        (Word::OutEnd, 77),
    ] {
        for kind in 0..2 {
            let mut rig = rig_with(2, &[0, 1]);
            let (a, mut b) = connect(&mut rig, 0, 1, 5000);
            let mut a = a.attach(&mut rig);
            if kind == 0 {
                b = b.attach(&mut rig);
            }
            rest(&mut rig);
            a.program().channel().store(word, value);
            // Bytes for the guest show what its position in IN is.
            b.write(&mut rig, b"bytes");
            a.program().bell(&mut rig);
            rest(&mut rig);
            let own = a.program().own;
            assert_eq!(take_for(&mut rig, own).last().unwrap().0.op, RST, "{word:?} {value}");
            if kind == 0 {
                let look = b.program().ends.consumer.look().unwrap();
                assert_eq!((look.bytes, look.end), (0, End::Reset));
            } else {
                b.read(&mut rig, 10);
                assert_eq!(b.kernel().ops, [RST]);
            }
            assert_eq!([0, 1].map(|guest| rig.count(guest, SocketWord::Malformed)), [1, 0]);
            let told = std::mem::take(&mut rig.switch.events);
            assert!(
                matches!(&told[..], [VsockEvent::Violation { port, what }]
                    if port.0 == 3 && what.contains("queue pair")),
                "{told:?}"
            );
            // The control connection is there until the program closes it.
            a.program().close_control(&mut rig);
            rest(&mut rig);
            assert_eq!(rig.count(0, SocketWord::Connections), 0);
        }
    }
}

#[test]
fn words_of_the_fabric_that_a_guest_overwrites_mean_nothing_to_the_fabric() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    for word in [Word::OutTail, Word::OutBytesWait, Word::InHead, Word::InRoomWait, Word::InEnd] {
        a.program().channel().store(word, 0x8765_4321);
        b.write(&mut rig, b"there");
        a.program().bell(&mut rig);
        rest(&mut rig);
        // What the fabric has in the ring is known to it alone.
        assert_eq!(rig.count(0, SocketWord::Malformed), 0);
    }
    let own = rig.ends(0, 1, 5000).0;
    assert!(take_for(&mut rig, own).is_empty());
}

#[test]
fn a_guest_that_takes_bytes_back_is_reset_and_its_peer_is_not_blamed() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    // The peer's ring is full, so bytes that were found wait.
    for _ in 0..20 {
        a.write(&mut rig, &stream(1, 20_000));
        rig.now += std::time::Duration::from_micros(100);
        rig.settle();
    }
    let channel = a.program().channel().clone();
    channel.store(Word::OutHead, channel.load(Word::OutTail));
    b.read(&mut rig, 30_000);
    rest(&mut rig);
    // It may as well never have written them, so far. But positions cannot be behind the fabric's.
    channel.store(Word::OutHead, channel.load(Word::OutTail).wrapping_sub(1));
    a.program().bell(&mut rig);
    rest(&mut rig);
    assert_eq!([0, 1].map(|guest| rig.count(guest, SocketWord::Malformed)), [1, 0]);
    b.read(&mut rig, 1 << 20);
    assert_eq!(b.program().ends.consumer.look().unwrap().end, End::Reset);
}

/// An attached end of the attacker's, and its peer, which may be attached, too.
struct Target {
    own: Program,
    peer: Peer,
}

/// A guest whose channels anybody in it may write to.
struct Attacker {
    targets: Vec<Target>,
    next_port: u32,
    /// Number of its connections that were reset.
    resets: usize,
}

impl Attacker {
    /// Attaches ends until there are a few. Forgets those that were reset.
    fn attach(&mut self, rig: &mut Rig, chance: &mut Chance) {
        self.targets.retain_mut(|Target { own, peer }| {
            let over = take_for(rig, own.own).iter().any(|(header, _)| header.op == RST);
            let _ = take_for(rig, own.control);
            if let Peer::Ring(peer) = peer {
                let _ = (take_for(rig, peer.control), take_for(rig, peer.own));
            }
            if over {
                own.close_control(rig);
                self.resets += 1;
                if let Peer::Ring(peer) = peer {
                    peer.close_control(rig);
                }
            }
            !over
        });
        if self.targets.len() < 5 && rig.drivers.iter_mut().all(|driver| driver.outstanding() < 20) {
            self.next_port += 1;
            let (a, b) = connect(rig, 0, 1 + chance.below(2), self.next_port);
            let Peer::Ring(own) = a.attach(rig) else { panic!() };
            let peer = if chance.below(2) == 0 { b } else { b.attach(rig) };
            self.targets.push(Target { own: *own, peer });
        }
    }

    /// Has the fabric look at one of its channels, or the peer send something.
    fn stir(&mut self, rig: &mut Rig, chance: &mut Chance) {
        let count = self.targets.len();
        let Some(target) = self.targets.get_mut(chance.below(count.max(1))) else { return };
        if chance.below(2) == 0 {
            target.own.bell(rig);
        } else {
            target.peer.write(rig, &[0; 100]);
        }
    }

    /// Writes something into a word of one of its channels.
    fn write_word(&self, chance: &mut Chance) {
        let target = self.targets.get(chance.below(self.targets.len().max(1)));
        let Some(Target { own: program, .. }) = target else { return };
        let word = Word::ALL[chance.below(Word::ALL.len())];
        let near = program.channel().load(Word::ALL[chance.below(Word::ALL.len())]);
        let value = match chance.below(6) {
            0 => chance.below(1 << 32) as u32,
            1 => chance.below(4) as u32,
            2 => near.wrapping_add(chance.below(RING) as u32),
            3 => near.wrapping_sub(chance.below(100) as u32),
            4 => near.wrapping_add(1),
            _ => u32::MAX,
        };
        program.channel().store(word, value);
    }
}

#[test]
fn random_words_disturb_no_neighbour() {
    let mut rig = rig_with(3, &[0, 1, 2]);
    let mut chance = Chance(11);
    let mut attacker = Attacker { targets: Vec::new(), next_port: 10_000, resets: 0 };
    // The neighbours' streams: between rings, and from a ring to packets.
    let (a, b) = connect(&mut rig, 1, 2, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    let (c, mut d) = connect(&mut rig, 2, 1, 5001);
    let mut c = c.attach(&mut rig);
    let (mut one, mut other) = (Exchange::new(1, 100_000), Exchange::new(2, 100_000));
    let (mut written, mut exchanged) = (0, 0);
    while written < 100_000 {
        for _ in 0..=chance.below(10) {
            attacker.write_word(&mut chance);
            written += 1;
        }
        if rig.drivers.iter_mut().all(|driver| driver.outstanding() < 40) {
            attacker.stir(&mut rig, &mut chance);
        }
        let done = one.step(&mut rig, &mut a, &mut b) & other.step(&mut rig, &mut c, &mut d);
        if done {
            exchanged += 1;
            (one, other) = (Exchange::new(exchanged, 100_000), Exchange::new(exchanged + 7, 100_000));
        }
        attacker.attach(&mut rig, &mut chance);
        // Whatever came for ends that are forgotten.
        rig.drivers[0].inbox.clear();
        for guest in [1, 2] {
            let inbox = &mut rig.drivers[guest].inbox;
            inbox.retain(|(header, _)| header.src_cid != 3 && header.src_port != SERVICE_PORT);
        }
        if written % 50 == 0 {
            rig.check();
        }
    }
    let resets = attacker.resets;
    assert!(exchanged > 3 && resets > 100, "{exchanged} exchanges, {resets} resets");
    assert!(rig.count(0, SocketWord::Malformed) > 100);
    assert_eq!([1, 2].map(|guest| rig.count(guest, SocketWord::Malformed)), [0, 0]);
    assert_eq!([1, 2].map(|guest| rig.count(guest, SocketWord::Forged)), [0, 0]);
}
