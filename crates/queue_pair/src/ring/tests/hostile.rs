//! Words with any values, between any operations.

use super::super::{End, Ends, Hostile};
use super::region;
use crate::layout::{Role, Word};
use crate::memory::{Channel, Copying, Memory, Region};

/// Values that each word gets.
const VALUES: u32 = 100_000;
const RING: u32 = 256;

/// Numbers without a pattern (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u32) -> u32 {
        (self.next() >> 33) as u32 % limit
    }

    /// A value for a word: any, or one near a position.
    fn value(&mut self, near: u32) -> u32 {
        match self.below(8) {
            0 => self.next() as u32,
            1 => [0, 1, 2, 3, u32::MAX, 1 << 31][self.below(6) as usize],
            2 => near.wrapping_add(self.below(3)).wrapping_sub(1),
            3 => near.wrapping_sub(RING).wrapping_add(self.below(3)).wrapping_sub(1),
            4 => near.wrapping_add(RING).wrapping_add(self.below(3)).wrapping_sub(1),
            _ => near.wrapping_add(self.below(2 * RING)).wrapping_sub(RING),
        }
    }
}

/// All bytes of a channel.
fn content(region: &Region, index: u32) -> Vec<u8> {
    let geometry = region.geometry();
    let memory: &Memory = region.memory();
    let mut out = vec![0; geometry.channel_len() as usize];
    memory.copy_out(
        geometry.channel(index).unwrap() as usize,
        crate::memory::as_uninit(&mut out),
        Copying::Library,
    );
    out
}

/// The party under test, in a channel that the other party spoils.
struct World {
    role: Role,
    channel: Channel,
    ends: Ends,
    /// A ring of another channel that nobody spoils, to move bytes from and to.
    other: Ends,
    errors: u32,
    moved: u64,
}

impl World {
    fn new(region: &Region, role: Role) -> Self {
        let channel = region.channel(1).unwrap();
        channel.clear();
        let ends = Ends::new(&channel, role, Copying::Words);
        let elsewhere = super::region(1, RING).channel(0).unwrap();
        // Both ends of the same ring: what is written there can be read there.
        let (producer, consumer) = super::ends(&elsewhere);
        Self { role, channel, ends, other: Ends { producer, consumer }, errors: 0, moved: 0 }
    }

    /// Counts what an operation did, which is at most `most`.
    fn note(&mut self, done: Result<usize, Hostile>, most: usize) {
        match done {
            Ok(count) => {
                assert!(count <= most.min(RING as usize));
                self.moved += count as u64;
            }
            Err(Hostile::Positions { head, tail, size, .. }) => {
                assert!(size == RING && head.wrapping_sub(tail) > size);
                self.errors += 1;
            }
            Err(Hostile::End { value, .. }) => {
                assert!(value > 1);
                self.errors += 1;
            }
            Err(Hostile::Overwritten { word, .. }) => panic!("no operation reads {word}"),
        }
    }

    fn operate(&mut self, numbers: &mut Numbers) {
        let count = numbers.below(2 * RING) as usize;
        let mut out = [0; 2 * RING as usize];
        let Ends { producer, consumer } = &mut self.ends;
        let done = match numbers.below(16) {
            0 | 1 => producer.write(&out[..count]),
            2 | 3 => consumer.read(&mut out[..count]),
            4 => consumer.peek(numbers.below(2 * RING) as usize, &mut out[..count]),
            5 => {
                let seen = consumer.peek(0, &mut out[..count]);
                consumer.skip(seen.unwrap_or(0));
                seen
            }
            6 => {
                let left = producer.used();
                left.map(|left| {
                    producer.copy_back(left, &mut out[..count.min(left as usize)]);
                    0
                })
            }
            7 => producer.write_from(&mut self.other.consumer, count),
            8 => self.other.producer.write_from(consumer, count),
            9 => consumer.look().map(|look| look.bytes as usize),
            10 => {
                producer.publish();
                consumer.publish();
                Ok(0)
            }
            11 => {
                let _signals = (producer.must_signal(), consumer.must_signal());
                Ok(0)
            }
            12 => {
                producer.wait();
                consumer.wait();
                Ok(0)
            }
            13 => {
                producer.stop_waiting();
                consumer.stop_waiting();
                Ok(0)
            }
            14 => consumer.free().map(|free| free as usize),
            _ => Ends::resume(&self.channel, self.role, Copying::Words).map(|ends| {
                self.ends = ends;
                0
            }),
        };
        self.note(done, RING as usize);
        // The good ring stays usable.
        let Ends { producer, consumer } = &mut self.other;
        producer.write(&out[..count]).unwrap();
        producer.publish();
        consumer.read(&mut out[..count]).unwrap();
        consumer.publish();
    }
}

fn any_words_are_survived(role: Role) {
    let region = region(3, RING);
    let before = [0, 2].map(|index| content(&region, index));
    let mut world = World::new(&region, role);
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for _ in 0..VALUES {
        for word in Word::ALL {
            let near = match word {
                Word::OutHead | Word::OutTail if role == Role::Guest => world.ends.producer.position(),
                Word::InHead | Word::InTail if role == Role::Fabric => world.ends.producer.position(),
                _ => world.ends.consumer.position(),
            };
            world.channel.store(word, numbers.value(near));
            world.operate(&mut numbers);
        }
    }
    assert_eq!([0, 2].map(|index| content(&region, index)), before, "bytes outside of the channel");
    assert!(content(&region, 1)[Word::InEnd.offset() + 4..4096].iter().all(|byte| *byte == 0));
    // The values were neither all refused nor all accepted.
    assert!(world.errors > VALUES / 10 && world.moved > VALUES.into(), "{} {}", world.errors, world.moved);
}

#[test]
fn the_fabric_survives_any_words() {
    any_words_are_survived(Role::Fabric);
}

#[test]
fn a_guest_survives_any_words() {
    any_words_are_survived(Role::Guest);
}

#[test]
fn each_end_has_its_number() {
    assert_eq!([End::Open, End::Finished, End::Reset].map(End::number), [0, 1, 2]);
}
