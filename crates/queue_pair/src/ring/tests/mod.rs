//! Both ends of rings in one process.

mod hostile;
mod model;
mod relay;
mod threads;
mod units;

use std::sync::Arc;

use super::{Consumer, Producer};
use crate::layout::{Direction, Geometry};
use crate::memory::{Channel, Copying, Memory, Region};

/// The first channel of a region of `channels` channels with rings of `ring_len` bytes.
fn region(channels: u32, ring_len: u32) -> Region {
    let geometry = Geometry::small(channels, ring_len);
    let memory = Memory::anonymous(geometry.end() as usize).unwrap();
    Region::new(Arc::new(memory), geometry).unwrap()
}

/// A channel with rings of `ring_len` bytes whose positions are all `start`.
fn channel(ring_len: u32, start: u32) -> Channel {
    let channel = region(1, ring_len).channel(0).unwrap();
    for direction in Direction::ALL {
        channel.store(direction.head(), start);
        channel.store(direction.tail(), start);
    }
    channel
}

/// Both ends of the ring from the guest.
fn ends(channel: &Channel) -> (Producer, Consumer) {
    let producer = Producer::resume(channel.clone(), Direction::Out, Copying::Library).unwrap();
    (producer, Consumer::resume(channel.clone(), Direction::Out, Copying::Library).unwrap())
}

/// A byte of the stream that tests send.
fn byte(number: u64) -> u8 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// Bytes of that stream.
fn stream(from: u64, count: usize) -> Vec<u8> {
    (from..).take(count).map(byte).collect()
}
