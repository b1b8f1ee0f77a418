//! A model of two ends whose steps happen in any order.
//!
//! Each end is a program that writes or reads, publishes, asks whether it must signal, and sleeps
//! when it finds nothing to do. Steps of both are interleaved, and another process may take over
//! either end at any time. After every step, an end that sleeps although there is work for it must
//! have been signalled, unless the other end has published and not yet asked.

use std::mem::MaybeUninit;

use proptest::prelude::*;

use super::super::{Consumer, End, Look, Producer};
use super::{channel, ends, stream};
use crate::layout::Direction;
use crate::memory::{Channel, Copying};

/// Steps of each case. With [`CASES`] there are a million.
const STEPS: usize = 2000;
const CASES: u32 = 500;

/// How far an end is on its way to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Awake,
    /// The wait is announced; the next step looks again.
    Announced,
    Asleep,
}

/// What the model knows of an end besides its positions.
#[derive(Debug)]
struct Side {
    state: State,
    /// A signal has come and was not taken.
    signalled: bool,
    /// The end has published and not yet asked whether it must signal.
    owes: bool,
    announced: u32,
    signals: u32,
}

impl Side {
    fn new() -> Self {
        Self { state: State::Awake, signalled: false, owes: false, announced: 0, signals: 0 }
    }

    fn signal(&mut self) {
        self.signalled = true;
        self.signals += 1;
    }

    /// A new process has taken over. It looks at everything first.
    fn replace(&mut self) {
        (self.state, self.owes) = (State::Awake, true);
    }
}

struct World {
    channel: Channel,
    producer: Producer,
    consumer: Consumer,
    /// Bytes of the stream that were written, published, read, and read and published.
    written: u64,
    published: u64,
    read: u64,
    freed: u64,
    writing: Side,
    reading: Side,
    /// Room of which the consumer tells the producer.
    least_room: u64,
    replaced: u32,
}

impl World {
    fn new(len: u32, start: u32, half: bool) -> Self {
        let channel = channel(len, start);
        let (producer, consumer) = ends(&channel);
        let least_room = if half { u64::from(len / 2).max(1) } else { 1 };
        let (writing, reading) = (Side::new(), Side::new());
        let (written, published, read, freed) = (0, 0, 0, 0);
        Self {
            channel,
            producer,
            consumer,
            written,
            published,
            read,
            freed,
            writing,
            reading,
            least_room,
            replaced: 0,
        }
    }

    fn size(&self) -> u64 {
        self.producer.size().into()
    }

    fn write(&mut self, count: usize) {
        let bytes = stream(self.written, count);
        let possible = count.min((self.size() - (self.written - self.freed)) as usize);
        assert_eq!(self.producer.write(&bytes), Ok(possible));
        self.written += possible as u64;
    }

    fn read(&mut self, count: usize, way: u16) {
        let possible = count.min((self.published - self.read) as usize);
        let mut out = vec![0; count];
        match way % 3 {
            0 => assert_eq!(self.consumer.read(&mut out), Ok(possible)),
            1 => {
                let half = possible / 2;
                assert_eq!(self.consumer.peek(0, &mut out[..half]), Ok(half));
                assert_eq!(self.consumer.peek(half, &mut out[half..]), Ok(possible - half));
                self.consumer.skip(possible);
            }
            _ => {
                let mut space = vec![MaybeUninit::new(0); count];
                assert_eq!(self.consumer.peek_uninit(0, &mut space), Ok(possible));
                assert_eq!(self.consumer.read(&mut out), Ok(possible));
            }
        }
        assert_eq!(out[..possible], stream(self.read, possible));
        self.read += possible as u64;
    }

    fn publish_bytes(&mut self) {
        assert_eq!(self.producer.publish(), self.published != self.written);
        self.writing.owes |= self.published != self.written;
        self.published = self.written;
    }

    fn publish_room(&mut self) {
        assert_eq!(self.consumer.publish(), self.freed != self.read);
        self.reading.owes |= self.freed != self.read;
        self.freed = self.read;
    }

    fn signal_bytes(&mut self) {
        self.writing.owes = false;
        if self.producer.must_signal() {
            self.reading.signal();
        }
    }

    fn signal_room(&mut self) {
        self.reading.owes = false;
        if u64::from(self.consumer.free().unwrap()) >= self.least_room && self.consumer.must_signal() {
            self.writing.signal();
        }
    }

    /// The next step of the producer on its way to sleep, or out of it.
    fn wait_for_room(&mut self) {
        match self.writing.state {
            State::Awake if self.published != self.written => self.publish_bytes(),
            State::Awake if self.writing.owes => self.signal_bytes(),
            State::Awake => {
                self.producer.wait();
                self.writing.announced += 1;
                self.writing.state = State::Announced;
            }
            State::Announced if self.producer.room().unwrap() == 0 => self.writing.state = State::Asleep,
            State::Asleep if !std::mem::take(&mut self.writing.signalled) => {}
            State::Announced | State::Asleep => {
                self.producer.stop_waiting();
                self.writing.state = State::Awake;
            }
        }
    }

    /// The next step of the consumer on its way to sleep, or out of it.
    fn wait_for_bytes(&mut self) {
        match self.reading.state {
            State::Awake if self.freed != self.read => self.publish_room(),
            State::Awake if self.reading.owes => self.signal_room(),
            State::Awake => {
                self.consumer.wait();
                self.reading.announced += 1;
                self.reading.state = State::Announced;
            }
            State::Announced if self.consumer.look().unwrap() == Look { bytes: 0, end: End::Open } => {
                self.reading.state = State::Asleep;
            }
            State::Asleep if !std::mem::take(&mut self.reading.signalled) => {}
            State::Announced | State::Asleep => {
                self.consumer.stop_waiting();
                self.reading.state = State::Awake;
            }
        }
    }

    /// Replaces one end by another process. What it has not published is lost.
    fn replace(&mut self, producer: bool) {
        self.replaced += 1;
        if producer {
            self.producer = Producer::resume(self.channel.clone(), Direction::Out, Copying::Words).unwrap();
            self.written = self.published;
            self.writing.replace();
        } else {
            self.consumer = Consumer::resume(self.channel.clone(), Direction::Out, Copying::Words).unwrap();
            self.read = self.freed;
            self.reading.replace();
        }
    }

    fn step(&mut self, action: u8, value: u16) {
        let count = usize::from(value >> 3) % (3 * self.size().min(128) as usize / 2 + 1);
        match action % 32 {
            31 if value.is_multiple_of(8) => self.replace(value & 8 == 0),
            0..16 if self.writing.state != State::Awake => self.wait_for_room(),
            16.. if self.reading.state != State::Awake => self.wait_for_bytes(),
            0..6 => self.write(count),
            6..10 => self.publish_bytes(),
            10..13 => self.signal_bytes(),
            13..16 => self.wait_for_room(),
            16..22 => self.read(count, value),
            22..26 => self.publish_room(),
            26..29 => self.signal_room(),
            _ => self.wait_for_bytes(),
        }
        self.check();
    }

    fn check(&self) {
        let (used, ready) = (self.written - self.freed, self.published - self.read);
        assert_eq!(u64::from(self.producer.room().unwrap()), self.size() - used);
        assert_eq!(u64::from(self.consumer.available().unwrap()), ready);
        if self.writing.state == State::Asleep && self.size() - used >= self.least_room {
            assert!(self.writing.signalled || self.reading.owes, "the producer sleeps over room");
        }
        if self.reading.state == State::Asleep && ready > 0 {
            assert!(self.reading.signalled || self.writing.owes, "the consumer sleeps over bytes");
        }
        for side in [&self.writing, &self.reading] {
            assert!(side.signals <= side.announced + self.replaced, "{side:?}");
        }
    }

    /// Lets both ends run until all bytes up to the end have been read.
    fn drain(&mut self) {
        let mut ended = false;
        let total = self.written + 3 * self.size();
        for _ in 0..100 {
            if self.writing.state != State::Awake {
                self.wait_for_room();
            } else if self.written < total {
                self.write((total - self.written) as usize);
                self.publish_bytes();
                self.signal_bytes();
                if self.written < total {
                    self.wait_for_room();
                }
            } else if !ended {
                self.producer.finish(End::Finished);
                self.published = self.written;
                self.signal_bytes();
                ended = true;
            }
            self.check();
            if self.reading.state == State::Awake {
                let look = self.consumer.look().unwrap();
                self.read(self.size() as usize, 0);
                self.publish_room();
                self.signal_room();
                if look.bytes == 0 && look.end == End::Finished {
                    assert_eq!(self.read, total);
                    return;
                }
            }
            self.wait_for_bytes();
            self.check();
        }
        panic!("the ends do not come to the end: {:?}, {:?}", self.writing, self.reading);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn bytes_are_exact_and_no_end_sleeps_over_work(
        shift in 0_u32..13,
        start in any::<u32>(),
        half in any::<bool>(),
        steps in proptest::collection::vec(any::<(u8, u16)>(), STEPS),
    ) {
        let mut world = World::new(1 << shift, start, half);
        for (action, value) in steps {
            world.step(action, value);
        }
        world.drain();
    }
}
