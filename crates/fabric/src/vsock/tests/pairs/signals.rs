//! Signals of streams that are held back, and what releases them.

use std::time::Duration;

use taut_api::fabric::counters::SocketWord;
use taut_queue_pair::End;
use taut_virtq::socket_header::{RST, SHUTDOWN, SHUTDOWN_SEND};

use super::super::rig::*;
use super::peers::{Peer, connect, stream};
use super::*;

const LOOK: Duration = Duration::from_micros(100);
/// Bytes that a stream writes between two looks.
const SOME: usize = 1000;

/// A stream from `a` to `b`, whose program reads all and then waits for more.
struct Streaming {
    rig: Rig,
    a: Peer,
    b: Peer,
}

impl Streaming {
    /// Begins a stream that has gone on for some time.
    fn start() -> Self {
        let mut rig = rig_with(2, &[0, 1]);
        let (a, b) = connect(&mut rig, 0, 1, 5000);
        let (a, b) = (a.attach(&mut rig), b.attach(&mut rig));
        rest(&mut rig);
        let mut this = Self { rig, a, b };
        // The signal of the last one is not held back.
        for _ in 0..13 {
            this.write(SOME);
            this.next_look();
        }
        this.read_all();
        this
    }

    fn write(&mut self, len: usize) {
        assert_eq!(self.a.write(&mut self.rig, &stream(1, len)), len);
    }

    /// Lets time pass until the next look is over.
    fn next_look(&mut self) {
        self.rig.now += LOOK;
        self.rig.settle();
        self.rig.check();
    }

    /// The receiver reads everything and announces that it waits.
    fn read_all(&mut self) {
        while !self.b.read(&mut self.rig, RING).is_empty() {}
        self.b.program().take_signals(&mut self.rig);
        self.b.program().ends.consumer.wait();
        assert_eq!(self.available(), 0);
    }

    /// Bytes that the receiver can read.
    fn available(&mut self) -> u32 {
        self.b.program().ends.consumer.available().unwrap()
    }

    /// Signals that the receiver's program has got.
    fn signals(&mut self) -> usize {
        self.b.program().take_signals(&mut self.rig)
    }
}

#[test]
fn a_stream_is_signalled_at_every_fourth_look_and_its_bytes_are_there_before() {
    let mut it = Streaming::start();
    for _ in 0..20 {
        for look in 1..=3 {
            it.write(SOME);
            it.next_look();
            assert_eq!((it.available() as usize, it.signals()), (look * SOME, 0));
        }
        it.write(SOME);
        it.next_look();
        assert_eq!((it.available() as usize, it.signals()), (4 * SOME, 1));
        it.read_all();
    }
}

#[test]
fn a_signal_is_sent_once_half_of_the_ring_is_full() {
    let mut it = Streaming::start();
    it.write(RING / 2 - 1);
    it.next_look();
    assert_eq!(it.signals(), 0);
    it.write(1);
    it.next_look();
    assert_eq!(it.signals(), 1);
}

#[test]
fn the_first_look_that_finds_nothing_releases_the_signal() {
    let mut it = Streaming::start();
    it.write(SOME);
    it.next_look();
    assert_eq!((it.available() as usize, it.signals()), (SOME, 0));
    it.next_look();
    assert_eq!(it.signals(), 1);
    rest(&mut it.rig);
    assert_eq!(it.signals(), 0);
}

#[test]
fn the_end_of_a_stream_is_signalled_at_once() {
    for by_shutdown in [false, true] {
        let mut it = Streaming::start();
        it.write(SOME);
        it.next_look();
        assert_eq!(it.signals(), 0);
        if by_shutdown {
            let own = it.a.program().own;
            it.rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
        } else {
            it.a.program().close(&mut it.rig);
        }
        it.rig.settle();
        assert_eq!(it.signals(), 1, "{by_shutdown}");
    }
}

#[test]
fn a_sender_that_leaves_its_ring_releases_the_signal() {
    for more in [0, SOME] {
        let mut it = Streaming::start();
        it.write(SOME);
        it.next_look();
        assert_eq!(it.signals(), 0);
        it.write(more);
        it.a.program().close_control(&mut it.rig);
        it.rig.settle();
        rest(&mut it.rig);
        assert_eq!((it.available() as usize, it.signals()), (SOME + more, 1));
    }
}

#[test]
fn a_fabric_that_takes_over_sends_the_signal() {
    let mut it = Streaming::start();
    it.write(SOME);
    it.next_look();
    assert_eq!(it.signals(), 0);
    let sockets = it.rig.stop_switch();
    it.rig.replace_switch(sockets);
    it.rig.settle();
    assert_eq!((it.available() as usize, it.signals()), (SOME, 1));
}

#[test]
fn small_messages_that_no_look_finds_in_a_row_are_signalled_at_once() {
    let mut it = Streaming::start();
    for _ in 0..20 {
        it.next_look();
        it.write(SOME);
        it.next_look();
        assert_eq!((it.available() as usize, it.signals()), (SOME, 1));
        it.read_all();
    }
}

#[test]
fn a_sender_that_had_paused_is_signalled_at_once() {
    let mut it = Streaming::start();
    rest(&mut it.rig);
    it.write(SOME);
    it.rig.settle();
    assert_eq!((it.available() as usize, it.signals()), (SOME, 1));
}

#[test]
fn requests_and_answers_are_signalled_at_once() {
    let mut it = Streaming::start();
    for _ in 0..20 {
        it.b.write(&mut it.rig, b"answer");
        it.next_look();
        assert_eq!(it.a.read(&mut it.rig, 100), b"answer");
        it.write(SOME);
        it.next_look();
        assert_eq!((it.available() as usize, it.signals()), (SOME, 1));
        it.read_all();
    }
}

/// Connects two attached ends, and has the first one write until there is no room in either ring.
fn full() -> (Rig, Peer, Peer) {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    let (mut a, b) = (a.attach(&mut rig), b.attach(&mut rig));
    while a.write(&mut rig, &stream(1, RING)) > 0 {
        rest(&mut rig);
    }
    a.program().take_signals(&mut rig);
    (rig, a, b)
}

#[test]
fn a_thread_that_waits_for_room_is_signalled_once_when_another_one_shuts_down() {
    for by_word in [false, true] {
        let (mut rig, mut a, _b) = full();
        a.program().ends.producer.wait();
        if by_word {
            a.program().ends.producer.finish(End::Finished);
            a.program().bell(&mut rig);
            rest(&mut rig);
        }
        let own = a.program().own;
        rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
        rest(&mut rig);
        rig.send_control(own, SHUTDOWN, SHUTDOWN_SEND);
        rest(&mut rig);
        assert_eq!(a.program().take_signals(&mut rig), 1, "{by_word}");
    }
}

#[test]
fn further_resets_of_a_peer_signal_nobody() {
    let (mut rig, mut a, mut b) = full();
    let own = a.program().own;
    rig.send_control(own, RST, 0);
    rest(&mut rig);
    assert_eq!(a.program().take_signals(&mut rig), 1);
    b.program().take_signals(&mut rig);
    for _ in 0..3 {
        // A thread waits for room again.
        a.program().ends.producer.wait();
        rig.send_control(own, RST, 0);
        rest(&mut rig);
    }
    assert_eq!([&mut a, &mut b].map(|end| end.program().take_signals(&mut rig)), [0, 0]);
    // The connection was there all the time.
    assert_eq!(rig.count(1, SocketWord::Connections), 2);
}
