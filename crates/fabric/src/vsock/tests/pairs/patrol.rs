//! Looks at attached ends for which no bell has come: at words that another program of the guest
//! has overwritten, and at programs that have missed a signal.

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::message::GIVE_UP;
use taut_queue_pair::{End, Word};
use taut_virtq::socket_header::RST;

use super::super::rig::*;
use super::peers::{Peer, connect};
use super::program::take_for;
use super::*;
use crate::vsock::VsockEvent;
use crate::vsock::sched::Patrols;

const PERIOD: Duration = Patrols::PERIOD;

/// Two attached ends of a connection, at rest.
struct Pair {
    rig: Rig,
    a: Peer,
    b: Peer,
}

impl Pair {
    fn new() -> Self {
        let mut rig = rig_with(2, &[0, 1]);
        let (a, b) = connect(&mut rig, 0, 1, 5000);
        let (a, b) = (a.attach(&mut rig), b.attach(&mut rig));
        rest(&mut rig);
        Self { rig, a, b }
    }

    /// Lets a period pass, in which each end is looked at once.
    fn patrol(&mut self) {
        patrol(&mut self.rig);
    }

    /// Signals that both programs have got.
    fn signals(&mut self) -> [usize; 2] {
        [&mut self.a, &mut self.b].map(|peer| peer.program().take_signals(&mut self.rig))
    }
}

fn patrol(rig: &mut Rig) {
    rig.now += PERIOD;
    rig.settle();
    rest(rig);
}

#[test]
fn an_overwritten_word_of_the_fabric_resets_the_connection_with_the_reason() {
    for word in [Word::OutTail, Word::OutBytesWait, Word::InHead, Word::InRoomWait, Word::InEnd] {
        let mut it = Pair::new();
        let channel = it.a.program().channel().clone();
        channel.store(word, channel.load(word) ^ 2);
        it.patrol();
        let own = it.a.program().own;
        assert_eq!(take_for(&mut it.rig, own).last().unwrap().0.op, RST, "{word}");
        assert_eq!(it.b.program().ends.consumer.look().unwrap().end, End::Reset);
        let told = std::mem::take(&mut it.rig.switch.events);
        assert!(
            matches!(&told[..], [VsockEvent::Violation { port, what }]
                if port.0 == 3 && what.contains(&word.to_string())),
            "{told:?}"
        );
        it.patrol();
        it.patrol();
        assert_eq!([0, 1].map(|guest| it.rig.count(guest, SocketWord::Malformed)), [1, 0]);
    }
}

#[test]
fn an_impossible_word_is_found_without_a_bell() {
    for (word, value) in [(Word::OutHead, u32::MAX), (Word::InTail, 1), (Word::OutEnd, 2)] {
        let mut it = Pair::new();
        it.a.program().channel().store(word, value);
        it.patrol();
        let own = it.a.program().own;
        assert_eq!(take_for(&mut it.rig, own).last().unwrap().0.op, RST, "{word}");
    }
}

#[test]
fn bytes_whose_bell_was_lost_arrive() {
    let mut it = Pair::new();
    // The program sees no wait of the fabric, since another one has overwritten its number.
    let channel = it.a.program().channel().clone();
    let announced = channel.load(Word::OutBytesWait);
    channel.store(Word::OutBytesWait, 0);
    it.a.write(&mut it.rig, b"request");
    channel.store(Word::OutBytesWait, announced);
    rest(&mut it.rig);
    assert_eq!((it.a.program().bells, it.b.read(&mut it.rig, 100).len()), (0, 0));
    it.patrol();
    assert_eq!(it.b.read(&mut it.rig, 100), b"request");
}

#[test]
fn room_whose_bell_was_lost_is_used() {
    let mut it = Pair::new();
    let channel = it.b.program().channel().clone();
    // The ring of the receiver is full, and the fabric waits for its room.
    let mut written = 0;
    while channel.load(Word::InRoomWait).is_multiple_of(2) {
        written += it.a.write(&mut it.rig, &[7; 4096]);
        rest(&mut it.rig);
    }
    let announced = channel.load(Word::InRoomWait);
    channel.store(Word::InRoomWait, 0);
    let mut read = it.b.read(&mut it.rig, RING).len();
    channel.store(Word::InRoomWait, announced);
    rest(&mut it.rig);
    assert_eq!((it.b.program().bells, it.b.read(&mut it.rig, RING).len()), (0, 0));
    it.patrol();
    read += it.b.read(&mut it.rig, RING).len();
    assert!(read > RING && read <= written, "{read} of {written} bytes");
}

#[test]
fn a_program_whose_wait_was_overwritten_is_signalled_within_two_periods() {
    let mut it = Pair::new();
    let consumer = &mut it.b.program().ends.consumer;
    consumer.wait();
    consumer.channel().store(Word::InBytesWait, 0);
    it.a.write(&mut it.rig, b"answer");
    rest(&mut it.rig);
    assert_eq!(it.signals(), [0, 0]);
    it.patrol();
    it.patrol();
    assert_eq!(it.signals()[1], 1);
    assert_eq!(it.b.read(&mut it.rig, 100), b"answer");
}

/// A peer that goes on sending hides nothing.
#[test]
fn a_program_whose_wait_was_overwritten_is_signalled_beside_traffic() {
    let mut it = Pair::new();
    let mut signals = 0;
    for _ in 0..5 {
        it.b.program().channel().store(Word::InBytesWait, 0);
        it.a.write(&mut it.rig, b"a byte at times");
        it.b.write(&mut it.rig, b"and back");
        it.patrol();
        signals += it.signals()[1];
    }
    assert_eq!(signals, 4, "all but the first time");
}

#[test]
fn a_program_that_gives_up_has_its_connection_reset() {
    let mut it = Pair::new();
    it.a.write(&mut it.rig, b"lost");
    let control = it.a.program().control;
    it.rig.write(control, &[GIVE_UP]);
    it.a.program().close_control(&mut it.rig);
    rest(&mut it.rig);
    let own = it.a.program().own;
    assert_eq!(take_for(&mut it.rig, own).last().unwrap().0.op, RST);
    assert_eq!(it.b.program().ends.consumer.look().unwrap().end, End::Reset);
    let told = std::mem::take(&mut it.rig.switch.events);
    assert!(
        matches!(&told[..], [VsockEvent::Violation { port, what }] if port.0 == 3 && what.contains("gives up")),
        "{told:?}"
    );
}

#[test]
fn bells_of_all_other_values_are_bells() {
    let mut it = Pair::new();
    let control = it.a.program().control;
    for value in (0..GIVE_UP).step_by(7) {
        it.rig.write(control, &[value]);
        it.rig.settle();
    }
    rest(&mut it.rig);
    it.a.write(&mut it.rig, b"goes on");
    rest(&mut it.rig);
    assert_eq!(it.b.read(&mut it.rig, 100), b"goes on");
}

#[test]
fn a_connection_at_rest_costs_one_signal_until_it_moves_again() {
    let mut it = Pair::new();
    for _ in 0..3 {
        it.a.write(&mut it.rig, b"some");
        rest(&mut it.rig);
        it.b.read(&mut it.rig, 100);
        it.signals();
        let mut total = [0; 2];
        for _ in 0..10 {
            it.patrol();
            let signals = it.signals();
            total = [0, 1].map(|end| total[end] + signals[end]);
        }
        assert_eq!(total, [1, 1]);
    }
}

#[test]
fn room_is_signalled_beside_a_wait_for_bytes() {
    let mut it = Pair::new();
    while it.a.write(&mut it.rig, &[7; 4096]) > 0 {}
    let ends = &mut it.a.program().ends;
    ends.producer.wait();
    ends.consumer.wait();
    ends.producer.channel().store(Word::OutRoomWait, 0);
    // The peer reads all, so there is room that nobody tells the program of.
    for _ in 0..50 {
        it.rig.settle();
        it.b.read(&mut it.rig, RING);
    }
    rest(&mut it.rig);
    assert_eq!((it.a.program().ends.producer.room(), it.signals()[0]), (Ok(RING as u32), 0));
    for _ in 0..5 {
        it.patrol();
    }
    assert_eq!(it.signals()[0], 1);
}

#[test]
fn a_program_that_waits_and_has_nothing_to_find_is_left_asleep() {
    let mut it = Pair::new();
    for end in [&mut it.a, &mut it.b] {
        end.program().ends.consumer.wait();
    }
    for _ in 0..5 {
        it.patrol();
    }
    assert_eq!(it.signals(), [0, 0]);
    // The usual signal of the bytes.
    it.a.write(&mut it.rig, b"request");
    rest(&mut it.rig);
    assert_eq!(it.signals(), [0, 1]);
    // A program that does not come is signalled once more.
    for _ in 0..5 {
        it.patrol();
    }
    assert_eq!(it.signals(), [0, 1]);
}

/// Four guests with so many connections from the first to the second, and from the third to the
/// fourth, and all ends attached.
fn attached(counts: [u32; 2]) -> (Rig, Vec<Peer>) {
    let mut rig = rig_with(4, &[0, 1, 2, 3]);
    let mut ends = Vec::new();
    for (first, count) in [0, 2].into_iter().zip(counts) {
        for port in 5000..5000 + count {
            let (a, b) = connect(&mut rig, first, first + 1, port);
            ends.extend([a.attach(&mut rig), b.attach(&mut rig)]);
        }
    }
    rest(&mut rig);
    (rig, ends)
}

#[test]
fn many_ends_are_looked_at_in_parts() {
    let (mut rig, mut ends) = attached([9, 3]);
    assert!(ends.len() > Patrols::MOST_ENDS && ends.len() < 2 * Patrols::MOST_ENDS);
    for peer in &mut ends {
        peer.program().channel().store(Word::InHead, 9);
    }
    // Guests take turns. One fault resets both ends of a connection.
    let faults = |rig: &mut Rig| [0, 1, 2, 3].map(|guest| rig.count(guest, SocketWord::Malformed));
    patrol(&mut rig);
    assert_eq!(faults(&mut rig), [5, 0, 3, 0]);
    rig.now += PERIOD / 2;
    rest(&mut rig);
    assert_eq!(faults(&mut rig), [9, 0, 3, 0]);
}

#[test]
fn after_a_fault_all_ends_are_looked_at_within_a_period() {
    let (mut rig, mut ends) = attached([14, 10]);
    let faults = |rig: &Rig| rig.count(3, SocketWord::Malformed);
    // One of the last ends to be looked at.
    ends.last_mut().unwrap().program().channel().store(Word::InHead, 9);
    patrol(&mut rig);
    assert_eq!(faults(&rig), 0, "a patrol looks at a few ends");
    // A program finds a fault itself.
    let control = ends[0].program().control;
    rig.write(control, &[GIVE_UP]);
    let mut waited = Duration::ZERO;
    while waited < PERIOD / 2 {
        rest(&mut rig);
        rig.now += Patrols::PAUSE;
        waited += Patrols::PAUSE;
    }
    rest(&mut rig);
    assert_eq!(faults(&rig), 1);
}

#[test]
fn a_guest_with_few_ends_is_looked_at_in_each_period_beside_others_with_many() {
    let mut rig = rig_that_sleeps((3..11).map(|cid| with_many_connections(device(cid, &["d"]))).collect());
    (0..8).for_each(|guest| rig.give_region(guest, REGION));
    let mut ends = Vec::new();
    for (first, count) in [(0, 31), (2, 31), (4, 31), (6, 2)] {
        for port in 5000..5000 + count {
            let (a, b) = connect(&mut rig, first, first + 1, port);
            ends.extend([a.attach(&mut rig), b.attach(&mut rig)]);
        }
    }
    patrol(&mut rig);
    // The ends of a guest with few.
    for end in [ends.len() - 4, ends.len() - 2] {
        let faults = |rig: &Rig| rig.count(6, SocketWord::Malformed);
        let before = faults(&rig);
        ends[end].program().channel().store(Word::InHead, 9);
        let mut waited = Duration::ZERO;
        while faults(&rig) == before {
            assert!(waited < PERIOD + Patrols::PAUSE, "nobody looks at the end");
            rig.now += Patrols::PAUSE;
            waited += Patrols::PAUSE;
            rest(&mut rig);
        }
    }
}

/// Raises the limits of a device's connections.
fn with_many_connections(device: SocketConfig) -> SocketConfig {
    SocketConfig { connections: 1000, half_open: 1000, ..device }
}

#[test]
fn as_many_ends_as_one_patrol_has_are_all_looked_at_in_each_period() {
    let (mut rig, mut ends) = attached([7, 1]);
    assert_eq!(ends.len(), Patrols::MOST_ENDS);
    patrol(&mut rig);
    patrol(&mut rig);
    let signals = |ends: &mut [Peer], rig: &mut Rig| -> Vec<_> {
        ends.iter_mut().map(|peer| peer.program().take_signals(rig)).collect()
    };
    assert_eq!(signals(&mut ends, &mut rig), [1; Patrols::MOST_ENDS]);
}
