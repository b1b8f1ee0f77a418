//! When rings are looked at, and when programs are signalled.

use std::time::Duration;

use taut_queue_pair::Word;
use taut_virtq::socket_header::RW;

use super::super::model::Chance;
use super::super::rig::*;
use super::peers::{Peer, connect, connect_to_host, stream};
use super::program::{Program, take_for};
use super::*;

const LOOK: Duration = Duration::from_micros(100);

/// Tells whether the fabric has announced that it waits for bytes of a program.
fn waits_for_bytes(program: &Program) -> bool {
    !program.channel().load(Word::OutBytesWait).is_multiple_of(2)
}

#[test]
fn a_ring_is_looked_at_every_100_us_and_after_8_empty_looks_at_a_bell() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    rest(&mut rig);
    for by_bell in [true, false] {
        if by_bell {
            assert!(waits_for_bytes(a.program()));
            // The thread sleeps, and no look is due.
            assert!(rig.switch.pause(rig.now).unwrap() > Duration::from_secs(1));
            // With a bell, the bytes arrive at once.
            assert_eq!((a.write(&mut rig, b"first"), a.program().bells), (5, 1));
            rig.settle();
            assert_eq!(b.read(&mut rig, 100), b"first");
        }
        assert!(!waits_for_bytes(a.program()));
        // Without one, at the next look.
        let bells = a.program().bells;
        for looks in [1, 5, 8, 3] {
            for _ in 1..looks {
                rig.now += LOOK;
                rig.settle();
                assert!(!waits_for_bytes(a.program()), "it still looks");
                assert!(rig.switch.pause(rig.now).unwrap() <= LOOK);
            }
            assert_eq!(a.write(&mut rig, b"next"), 4);
            rig.settle();
            assert_eq!(b.read(&mut rig, 100), b"", "before the look");
            rig.now += LOOK;
            rig.settle();
            assert_eq!(b.read(&mut rig, 100), b"next");
        }
        assert_eq!(a.program().bells, bells);
    }
    for looks in 1..=8 {
        assert!(!waits_for_bytes(a.program()), "before look {looks}");
        rig.now += LOOK;
        rig.settle();
    }
    assert!(waits_for_bytes(a.program()));
}

#[test]
fn programs_that_take_turns_ring_bells_and_streams_are_looked_at() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    rest(&mut rig);
    for round in 0..6 {
        assert_eq!(a.write(&mut rig, b"request"), 7);
        rig.now += LOOK;
        rig.settle();
        assert_eq!(b.read(&mut rig, 100), b"request");
        assert_eq!(b.write(&mut rig, b"answer"), 6);
        rig.now += LOOK;
        rig.settle();
        assert_eq!(a.read(&mut rig, 100), b"answer");
        assert_eq!(waits_for_bytes(a.program()), round >= 2, "{round}");
    }
    // No time passes.
    assert_eq!(a.write(&mut rig, b"request"), 7);
    rig.settle();
    assert_eq!(b.read(&mut rig, 100), b"request");
    assert!(waits_for_bytes(a.program()));
    for _ in 0..5 {
        assert_eq!(a.write(&mut rig, b"stream"), 6);
        rig.now += LOOK;
        rig.settle();
    }
    assert!(!waits_for_bytes(a.program()));
    let bells = a.program().bells;
    for _ in 0..20 {
        assert_eq!(a.write(&mut rig, b"stream"), 6);
        rig.now += LOOK;
        rig.settle();
    }
    assert_eq!(a.program().bells, bells);
    assert_eq!(b.read(&mut rig, 1000), b"stream".repeat(25));
}

#[test]
fn streams_of_both_ways_are_looked_at() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    rest(&mut rig);
    let mut bells = 0;
    for round in 0..200 {
        for _ in 0..3 {
            assert_eq!(a.write(&mut rig, b"there"), 5);
            assert_eq!(b.write(&mut rig, b"back"), 4);
            rig.step();
        }
        rig.now += LOOK;
        rig.settle();
        a.read(&mut rig, 100);
        b.read(&mut rig, 100);
        if round == 100 {
            bells = a.program().bells;
        }
    }
    assert!(a.program().bells - bells <= 50, "{} bells in 300 writes", a.program().bells - bells);
}

#[test]
fn a_look_in_vain_is_no_work() {
    let mut rig = rig_with(2, &[0]);
    let (a, _) = connect(&mut rig, 0, 1, 5000);
    let _a = a.attach(&mut rig);
    let mut looks = 0;
    while let Some(pause) = rig.switch.pause(rig.now).filter(|pause| *pause <= LOOK) {
        rig.now += pause;
        assert!(!rig.switch.round(rig.now), "the thread would not sleep");
        looks += 1;
        assert!(looks < 100);
    }
    assert!((8..=16).contains(&looks), "{looks} looks");
}

#[test]
fn a_look_moves_a_bounded_number_of_bytes_and_all_channels_have_their_turn() {
    let mut rig = rig_that_sleeps((3..7).map(|cid| device(cid, &["d"])).collect());
    // Rings of 256 KiB.
    (0..4).for_each(|guest| rig.give_region(guest, 16 << 20));
    let mut pairs: Vec<(Peer, Peer)> = (5000..5012)
        .map(|port| {
            let (a, b) = connect(&mut rig, 0, 1, port);
            (a.attach(&mut rig), b.attach(&mut rig))
        })
        .collect();
    let (c, d) = connect(&mut rig, 2, 3, 5000);
    let (mut c, mut d) = (c.attach(&mut rig), d.attach(&mut rig));
    rest(&mut rig);
    let bytes = stream(1, 256 << 10);
    for (a, _) in &mut pairs {
        assert_eq!(a.write(&mut rig, &bytes), bytes.len());
    }
    assert_eq!(c.write(&mut rig, b"small"), 5);
    let mut rounds = 0;
    let arrived = |peer: &mut Peer| peer.program().ends.consumer.available().unwrap() as usize;
    while arrived(&mut d) == 0 {
        let before: usize = pairs.iter_mut().map(|(_, b)| arrived(b)).sum();
        rig.step();
        let after: usize = pairs.iter_mut().map(|(_, b)| arrived(b)).sum();
        assert!(after - before <= (1 << 20) + (256 << 10), "{} bytes in a round", after - before);
        rounds += 1;
    }
    assert!(rounds <= 5, "{rounds} rounds");
    rig.settle();
    assert!(pairs.iter_mut().all(|(_, b)| arrived(b) == bytes.len()));
}

#[test]
fn what_a_look_has_found_is_moved_without_a_further_look() {
    let mut rig = rig_with(2, &[0, 1]);
    // Rings of 1 MiB, of which a turn moves a part.
    (0..2).for_each(|guest| rig.give_region(guest, 64 << 20));
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    rest(&mut rig);
    let bytes = stream(1, 1 << 20);
    assert_eq!(a.write(&mut rig, &bytes), bytes.len());
    // No time passes.
    rig.settle();
    assert!(b.read(&mut rig, 2 << 20) == bytes);
}

#[test]
fn a_full_ring_is_looked_at_and_then_waits_for_a_bell() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    let bytes = stream(1, 2 * RING);
    let mut sent = 0;
    while sent < bytes.len() {
        sent += a.write(&mut rig, &bytes[sent..]);
        rig.now += LOOK;
        rig.settle();
    }
    let waits = |b: &mut Peer| !b.program().channel().load(Word::InRoomWait).is_multiple_of(2);
    assert!(!waits(&mut b));
    // Room that is made while the fabric looks takes no bell.
    let mut got = b.read(&mut rig, 1000);
    rig.now += LOOK;
    rig.settle();
    assert_eq!((b.program().bells, b.program().ends.consumer.available().unwrap() as usize), (0, RING));
    rest(&mut rig);
    assert!(waits(&mut b));
    assert!(rig.switch.pause(rig.now).unwrap() > Duration::from_secs(1));
    while got.len() < bytes.len() {
        let more = b.read(&mut rig, 10_000);
        assert!(!more.is_empty() || got.len() < bytes.len());
        got.extend(more);
        rig.settle();
        rig.now += LOOK;
    }
    assert!(got == bytes && b.program().bells > 0);
}

#[test]
fn room_is_signalled_once_half_of_the_ring_is_free() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, mut b) = (a.attach(&mut rig), b.attach(&mut rig));
    let bytes = stream(1, 2 * RING);
    let mut sent = 0;
    while sent < bytes.len() {
        sent += a.write(&mut rig, &bytes[sent..]);
        rig.now += LOOK;
        rig.settle();
    }
    a.program().ends.producer.wait();
    assert_eq!(a.program().ends.producer.room().unwrap(), 0);
    let mut room = 0;
    while room < RING {
        b.read(&mut rig, RING / 8);
        rig.now += LOOK;
        rig.settle();
        room += RING / 8;
        let signals = a.program().take_signals(&mut rig);
        assert_eq!(signals, usize::from(room == RING / 2), "with {room} bytes of room");
    }
}

/// A program that sleeps when it can do nothing, as real ones do.
struct Sleeper {
    peer: Peer,
    out: Vec<u8>,
    written: usize,
    got: Vec<u8>,
    expected: usize,
    asleep: bool,
    announcements: usize,
}

impl Sleeper {
    fn new(peer: Peer, seed: u64, len: usize, expected: usize) -> Self {
        let (out, got) = (stream(seed, len), Vec::new());
        Self { peer, out, written: 0, got, expected, asleep: false, announcements: 0 }
    }

    fn is_done(&self) -> bool {
        self.written == self.out.len() && self.got.len() == self.expected
    }

    /// Runs for a while, or not at all if it sleeps and was not signalled.
    fn run(&mut self, rig: &mut Rig, chance: &mut Chance) {
        let program = self.peer.program();
        if program.take_signals(rig) > 0 {
            self.asleep = false;
            program.ends.consumer.stop_waiting();
            program.ends.producer.stop_waiting();
        }
        if self.asleep {
            return;
        }
        for _ in 0..chance.below(6) {
            let most = 1 + chance.below(30_000);
            let end = (self.written + most).min(self.out.len());
            let wrote = program.write(rig, &self.out[self.written..end]);
            self.written += wrote;
            let got = program.read(rig, 1 + chance.below(30_000));
            let is_idle = wrote == 0 && got.is_empty();
            self.got.extend(got);
            if is_idle {
                return self.sleep();
            }
        }
    }

    /// Announces what it waits for, looks again, and sleeps.
    fn sleep(&mut self) {
        let ends = &mut self.peer.program().ends;
        let wants_room = self.written < self.out.len();
        ends.consumer.wait();
        if wants_room {
            ends.producer.wait();
        }
        self.announcements += 1 + usize::from(wants_room);
        if ends.consumer.available().unwrap() > 0 || wants_room && ends.producer.room().unwrap() > 0 {
            ends.consumer.stop_waiting();
            ends.producer.stop_waiting();
            return;
        }
        self.asleep = true;
    }
}

#[test]
fn no_wake_up_is_lost_and_no_announcement_gets_two_signals() {
    for seed in 0..30 {
        let mut rig = rig_with(2, &[0, 1]);
        let mut chance = Chance(seed);
        let (a, b) = connect(&mut rig, 0, 1, 5000);
        let (a, b) = (a.attach(&mut rig), b.attach(&mut rig));
        let (there, back) = (400_000, if seed % 3 == 0 { 0 } else { 300_000 });
        let mut programs = [Sleeper::new(a, 1, there, back), Sleeper::new(b, 2, back, there)];
        let mut idle = 0;
        while !programs.iter().all(Sleeper::is_done) {
            let before: usize = programs.iter().map(|program| program.written + program.got.len()).sum();
            let first = chance.below(2);
            for number in [first, 1 - first] {
                if chance.below(3) > 0 {
                    programs[number].run(&mut rig, &mut chance);
                }
            }
            match chance.below(4) {
                0 => rig.now += Duration::from_micros(chance.below(500) as u64),
                1 => rig.settle(),
                _ => _ = rig.step(),
            }
            let after: usize = programs.iter().map(|program| program.written + program.got.len()).sum();
            idle = if after == before { idle + 1 } else { 0 };
            assert!(idle < 1000, "seed {seed}: everybody sleeps");
        }
        rest(&mut rig);
        assert!(programs[0].got == stream(2, back) && programs[1].got == stream(1, there));
        for program in &mut programs {
            program.peer.program().take_signals(&mut rig);
            let signals = program.peer.program().signals;
            assert!(signals <= program.announcements, "{signals} signals, {}", program.announcements);
        }
    }
}

#[test]
fn small_bytes_of_a_ring_gather_while_their_receiver_has_many_packets_unread() {
    let mut rig = rig_with(2, &[0]);
    let (a, mut b) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    let own = b.kernel().own;
    // Linux ends a connection that has some hundreds of packets unread.
    for _ in 0..300 {
        a.write(&mut rig, b"x");
        rig.now += Duration::from_micros(100);
        rig.settle();
    }
    rest(&mut rig);
    take_for(&mut rig, own);
    for byte in 0..20 {
        a.write(&mut rig, &[byte]);
        rig.step();
    }
    rest(&mut rig);
    let got = take_for(&mut rig, own).into_iter().filter(|(header, _)| header.op == RW);
    let got: Vec<_> = got.map(|(_, bytes)| bytes).collect();
    assert_eq!(got, [(0..20).collect::<Vec<u8>>()]);
}

#[test]
fn a_round_towards_the_host_is_bounded() {
    const CONNECTIONS: u32 = 24;
    let mut rig = rig_with(1, &[0]);
    let mut all: Vec<_> = (0..CONNECTIONS).map(|port| connect_to_host(&mut rig, 5000 + port)).collect();
    let packet = stream(1, 64 << 10);
    for (a, _) in &mut all {
        let own = a.kernel().own;
        rig.write(own, &packet);
    }
    let read = |all: &mut Vec<(Peer, Peer)>, rig: &mut Rig| -> usize {
        all.iter_mut().map(|(_, b)| b.read(rig, 1 << 20).len()).sum()
    };
    let mut rounds = Vec::new();
    while rounds.iter().sum::<usize>() < packet.len() * CONNECTIONS as usize {
        rig.step();
        rounds.push(read(&mut all, &mut rig));
        assert!(rounds.len() < 100, "{rounds:?}");
    }
    let most = (1 << 20) + packet.len();
    assert!(rounds.iter().all(|&bytes| bytes <= most), "{rounds:?}");
    assert!(rounds.iter().filter(|&&bytes| bytes > 0).count() > 1, "{rounds:?}");
}
