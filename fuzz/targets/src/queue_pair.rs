//! Queue pairs: the header of a region, messages of the control connection, and rings whose other
//! side writes any words between operations.
//!
//! Input: 1 byte that selects a part and a role. Then the messages, or for the ring an optional
//! header (28 bytes behind its magic), the number of the channel (2 bytes) and operations of 4
//! bytes.

use std::sync::Arc;

use taut_queue_pair::layout::{HEADER_LEN, MAGIC};
use taut_queue_pair::memory::Copying;
use taut_queue_pair::message::{ANSWER_LEN, REQUEST_LEN};
use taut_queue_pair::{
    AttachAnswer, AttachRequest, Channel, Consumer, Direction, End, Ends, Geometry, Hostile, Memory,
    Producer, Region, Role, Word,
};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "queue_pair", run, budget: Budget::of(100, 16) };

/// Length of a region in bytes, the shortest one.
const LEN: usize = 4 << 20;
/// Most operations of an input.
const OPERATIONS: usize = 64;
/// Most bytes that an operation reads or writes by itself.
const BYTES: usize = 512;

thread_local! {
    static MEMORY: [Arc<Memory>; 2] = std::array::from_fn(|_| {
        Arc::new(Memory::anonymous(LEN).expect("some memory"))
    });
}

fn run(data: &[u8]) {
    let mut input = Input(data);
    let bits = input.u8();
    let role = if bits & 4 == 0 { Role::Fabric } else { Role::Guest };
    match bits & 3 {
        0 => check_messages(&mut input),
        1 => MEMORY.with(|[memory, other]| {
            let mut header = [0; HEADER_LEN];
            header[..MAGIC.len()].copy_from_slice(&MAGIC);
            header[MAGIC.len()..].copy_from_slice(&input.array::<{ HEADER_LEN - MAGIC.len() }>());
            if let Some(region) = check_header(memory, &header) {
                operate(&region, other, role, &mut input);
            }
        }),
        _ => MEMORY.with(|[memory, other]| operate(&known(memory), other, role, &mut input)),
    }
}

/// The region whose geometry follows from its length.
fn known(memory: &Arc<Memory>) -> Region {
    let geometry = Geometry::of(LEN as u64).expect("a possible length");
    Region::new(Arc::clone(memory), geometry).expect("enough memory")
}

/// Checks that a message that is accepted says what its bytes say.
fn check_messages(input: &mut Input<'_>) {
    let bytes = input.array::<REQUEST_LEN>();
    match AttachRequest::from_bytes(&bytes) {
        Ok(request) => assert_eq!(request.to_bytes(), bytes),
        Err(error) => assert_eq!(bytes[..4], error.0.to_le_bytes()),
    }
    let mut bytes = input.array::<ANSWER_LEN>();
    match AttachAnswer::from_bytes(&bytes) {
        Ok(answer) => {
            bytes[12..16].fill(0);
            bytes[24..].fill(0);
            assert_eq!(answer.to_bytes(), bytes);
            assert!(!answer.status.to_string().is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks that the channels of a header that is accepted lie in the memory.
fn check_header(memory: &Arc<Memory>, header: &[u8; HEADER_LEN]) -> Option<Region> {
    memory.write_header(header);
    let region = match Region::open(Arc::clone(memory)) {
        Ok(region) => region,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let geometry = region.geometry();
    assert_eq!(&geometry.header(), header);
    let (channels, ring) = (geometry.channels(), u64::from(geometry.ring_len()));
    assert!(channels > 0 && region.channel(channels).is_none());
    for index in [0, channels - 1] {
        let channel = geometry.channel(index).expect("a channel of the region");
        let rings = Direction::ALL.map(|direction| geometry.ring(direction) + ring);
        assert!(channel >= 4096 && rings.iter().all(|end| channel + end <= LEN as u64));
    }
    Some(region)
}

/// One party in a channel whose other side is hostile.
struct Party {
    role: Role,
    channel: Channel,
    ends: Ends,
    /// Both ends of a ring that nobody spoils.
    other: Ends,
    /// Words as the other side has written them last.
    written: [u32; Word::ALL.len()],
}

fn operate(region: &Region, other: &Arc<Memory>, role: Role, input: &mut Input<'_>) {
    let index = u32::from(input.u16()) % region.geometry().channels();
    let channel = region.channel(index).expect("a channel of the region");
    channel.clear();
    let elsewhere = known(other).channel(0).expect("a region has a channel");
    elsewhere.clear();
    let other = Ends {
        producer: Producer::new(elsewhere.clone(), Direction::Out, Copying::Library),
        consumer: Consumer::new(elsewhere, Direction::Out, Copying::Library),
    };
    let ends = Ends::new(&channel, role, Copying::Words);
    let mut party = Party { role, channel, ends, other, written: [0; Word::ALL.len()] };
    let mut operations = Input(input.slice(4 * OPERATIONS));
    while !operations.is_empty() {
        let (code, at, value) = (operations.u8(), operations.u8(), operations.u16());
        party.operate(code, at, value);
        party.check_words();
    }
}

impl Party {
    /// Tells whether the other side writes this word.
    fn is_theirs(&self, word: Word) -> bool {
        let (own, theirs) = (self.role.produces(), self.role.consumes());
        let words = [own.tail(), own.bytes_wait(), theirs.head(), theirs.room_wait(), theirs.end()];
        words.contains(&word)
    }

    /// Has the other side write a word: any of its own, or one of this party's.
    fn spoil(&mut self, at: u8, value: u32) {
        let number = usize::from(at) % Word::ALL.len();
        self.channel.store(Word::ALL[number], value);
        self.written[number] = value;
    }

    /// Checks that this party has written no word of the other side.
    fn check_words(&self) {
        for (word, written) in Word::ALL.into_iter().zip(self.written) {
            assert!(!self.is_theirs(word) || self.channel.load(word) == written, "{word:?}");
        }
    }

    fn operate(&mut self, code: u8, at: u8, value: u16) {
        let mut bytes = [at; BYTES];
        let count = usize::from(value);
        let part = count % (BYTES + 1);
        let size = self.ends.producer.size() as usize;
        let Ends { producer, consumer } = &mut self.ends;
        let (head, tail) = (producer.position(), consumer.position());
        let done = match code % 21 {
            0..5 => {
                let (wide, signed) = (u32::from(value), i32::from(value.cast_signed()));
                self.spoil(
                    at,
                    match code % 21 {
                        0 => wide << 16 | wide,
                        1 => head.wrapping_add_signed(signed),
                        2 => tail.wrapping_add_signed(signed),
                        3 => tail.wrapping_add(size as u32).wrapping_add_signed(signed),
                        _ => wide,
                    },
                );
                Ok(())
            }
            5 => producer.write(&bytes[..part]).map(|done| assert!(done <= part)),
            6 => consumer.read(&mut bytes[..part]).map(|done| assert!(done <= part)),
            7 => consumer.peek(at.into(), &mut bytes[..part]).map(|done| assert!(done <= part)),
            8 => consumer.peek(0, &mut bytes[..part]).map(|seen| {
                assert!(seen <= part);
                consumer.skip(seen);
            }),
            9 => producer.used().map(|left| {
                assert!(left as usize <= size);
                producer.copy_back(left, &mut bytes[..part.min(left as usize)]);
            }),
            10 => producer
                .write_from(&mut self.other.consumer, count)
                .map(|done| assert!(done <= count.min(size))),
            11 => {
                self.other.producer.write_from(consumer, count).map(|done| assert!(done <= count.min(size)))
            }
            12 => consumer.look().map(|look| {
                assert!(look.bytes as usize <= size);
                assert!(look.end != End::Reset || self.role == Role::Guest);
            }),
            13 => {
                producer.publish();
                consumer.publish();
                Ok(())
            }
            14 => {
                let again = (producer.must_signal(), producer.must_signal());
                assert!(!again.1, "two signals for one announcement");
                consumer.must_signal();
                Ok(())
            }
            15 => {
                producer.wait();
                consumer.wait();
                Ok(())
            }
            16 => {
                producer.stop_waiting();
                consumer.stop_waiting();
                assert!(!producer.is_waiting() && !consumer.is_waiting());
                Ok(())
            }
            17 => {
                producer.finish([End::Open, End::Finished, End::Reset][usize::from(at) % 3]);
                Ok(())
            }
            18 => Ends::resume(&self.channel, self.role, Copying::Words).map(|ends| self.ends = ends),
            19 => consumer.check_own_words().and(producer.check_position(End::Open)),
            _ => self.exchange(part),
        };
        self.check(done);
    }

    /// Moves bytes through the good ring.
    fn exchange(&mut self, count: usize) -> Result<(), Hostile> {
        let Ends { producer, consumer } = &mut self.other;
        producer.publish();
        consumer.publish();
        let (room, ready) = (producer.room()?, consumer.available()?);
        assert_eq!(room + ready, producer.size());
        let bytes = [0x5a; BYTES];
        assert_eq!(producer.write(&bytes[..count]), Ok(count.min(room as usize)));
        producer.publish();
        let mut out = [0; BYTES];
        let read = consumer.read(&mut out[..count])?;
        assert_eq!(read, count.min(ready as usize + count.min(room as usize)));
        consumer.publish();
        Ok(())
    }

    /// Checks that an error names positions or ends that really are impossible.
    fn check(&self, done: Result<(), Hostile>) {
        match done {
            Ok(()) => {}
            Err(Hostile::Positions { head, tail, size, .. }) => {
                assert!(size == self.channel.ring_len() && head.wrapping_sub(tail) > size);
            }
            Err(Hostile::End { direction, value }) => {
                assert!(value > 2 || value == 2 && direction == Direction::Out);
            }
            Err(Hostile::Overwritten { word, written, found }) => {
                assert!(written != found && self.channel.load(word) == found);
            }
        }
    }
}
