//! Writes garbage into all words that a program of a guest can reach.

use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use taut_queue_pair::Geometry;
use taut_queue_pair::layout::Word;

use crate::mapped::Mapped;

/// Pause between two rounds, in which programs and the fabric act on what is there.
const PAUSE: Duration = Duration::from_micros(50);
/// Rounds between two sweeps over the whole device.
const SWEEP: u64 = 2000;
/// Bytes of the header, which programs read when they begin. The last round writes into it, too.
const HEADER: usize = 4096;

/// A generator of numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A value for a word that had another one: anything, something near it, or an extreme.
    fn garbage(&mut self, before: u32) -> u32 {
        let random = self.next();
        let (small, any) = ((random >> 40) as u32, random as u32);
        match (random >> 32) % 8 {
            0..=2 => any,
            3 => before.wrapping_add(small % 4096),
            4 => before.wrapping_sub(small % 4096),
            5 => before.wrapping_add(1),
            6 => small % 4,
            _ => u32::MAX - small % 2,
        }
    }
}

/// Writes garbage into every word of every channel in each of so many rounds, into words of rings
/// and between them, and now and then into all bytes of the device.
pub(crate) fn write(device: &str, size: usize, rounds: u64, seed: u64) -> Result<(), Box<dyn Error>> {
    let memory = Mapped::new(device, size, 0)?;
    let geometry = Geometry::of(size as u64)?;
    let channels: Vec<usize> = (0..geometry.channels())
        .filter_map(|index| geometry.channel(index))
        .map(|offset| offset as usize)
        .collect();
    let mut random = Random(seed | 1);
    let mut words: u64 = 0;
    let mut spoil = |offset: usize, random: &mut Random| {
        let value = random.garbage(memory.word(offset).load(Relaxed));
        memory.store(offset, value);
        words += 1;
    };
    let begin = Instant::now();
    for round in 1..=rounds {
        for &channel in &channels {
            for word in Word::ALL {
                spoil(channel + word.offset(), &mut random);
            }
            // Another word of the page, which has no meaning, and one of the rings behind it.
            spoil(channel + (random.next() % 1024) as usize * 4, &mut random);
            let len = geometry.channel_len() as usize;
            spoil(channel + (random.next() % (len / 4) as u64) as usize * 4, &mut random);
        }
        if round.is_multiple_of(SWEEP) || round == rounds {
            let first = if round == rounds { 0 } else { HEADER };
            (first..memory.len()).step_by(4).for_each(|offset| spoil(offset, &mut random));
        }
        std::thread::sleep(PAUSE);
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("garbage: {rounds} rounds, {words} words, {} channels, {seconds:.1} s.", channels.len());
    Ok(())
}
