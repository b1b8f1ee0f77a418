//! What this machine can do without any switch: the floor and the ceiling beside which measurements are read.
//!
//! A cache line passed between two CPUs bounds any latency between two VMs from below; how fast memory is copied bounds
//! any throughput from above. Virtual machines get moved between sockets and change neighbours, so both belong into the
//! run that they explain.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Sizes of the blocks copied, in bytes: within the first-level cache, within the second, and beyond all.
pub const COPY_SIZES: [usize; 4] = [1518, 64 << 10, 1 << 20, 64 << 20];

/// Round trips between two looks at the clock.
const BATCH: u64 = 1000;

/// Raw figures of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    /// The CPUs between which the cache line went; both the same if this process may use one only.
    pub cpus: [u32; 2],
    /// Round trip of a cache line in nanoseconds, mean over batches of a thousand: the fastest batch, the middle one, and
    /// the 99th percentile. None with one CPU only.
    pub ping_pong_ns: Option<Spread>,
    /// Copying speed by block size.
    pub memcpy: Vec<Copying>,
}

/// Three points of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Copying speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Copying {
    /// Bytes per copy.
    pub size: usize,
    /// Copied bytes per nanosecond, that is GB/s.
    pub gbyte_s: f64,
}

/// Measures for about `duration` in all.
pub fn measure(duration: Duration) -> io::Result<Raw> {
    let own = sched_getaffinity(None)?;
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu));
    let first = allowed.next().unwrap_or(0);
    let second = allowed.next();
    let ping_pong_ns = second.map(|second| ping_pong([first, second], duration / 2)).transpose()?;
    let share = duration / 2 / COPY_SIZES.len() as u32;
    let memcpy = COPY_SIZES.iter().map(|&size| Copying { size, gbyte_s: memcpy(size, share) }).collect();
    Ok(Raw { cpus: [first as u32, second.unwrap_or(first) as u32], ping_pong_ns, memcpy })
}

/// A word on a cache line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

/// How long a cache line takes from one CPU to the other and back, in nanoseconds. Virtual machines get moved: whoever
/// compares two switches asks before and after, and compares equal states only.
pub fn placement(cpus: [usize; 2], duration: Duration) -> io::Result<Spread> {
    ping_pong(cpus, duration)
}

/// Two threads on two CPUs raise the same word in turn.
fn ping_pong(cpus: [usize; 2], duration: Duration) -> io::Result<Spread> {
    const STOP: u64 = u64::MAX;
    let line = Line(AtomicU64::new(0));
    thread::scope(|scope| {
        let echo = scope.spawn(|| -> io::Result<()> {
            pin(cpus[1])?;
            let mut expected = 1;
            loop {
                match line.0.load(Ordering::Acquire) {
                    STOP => return Ok(()),
                    value if value == expected => {
                        line.0.store(value + 1, Ordering::Release);
                        expected += 2;
                    }
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let asked = scope.spawn(|| -> io::Result<Spread> {
            let result = pin(cpus[0]).map(|()| ask(&line.0, duration));
            line.0.store(STOP, Ordering::Release);
            result
        });
        let result = join(asked.join());
        join(echo.join())?;
        result
    })
}

fn join<T>(result: thread::Result<io::Result<T>>) -> io::Result<T> {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn ask(word: &AtomicU64, duration: Duration) -> Spread {
    let mut batches = Vec::new();
    let mut value = 0;
    let begun = Instant::now();
    let mut last = begun;
    while last - begun < duration || batches.is_empty() {
        for _ in 0..BATCH {
            word.store(value + 1, Ordering::Release);
            value += 2;
            while word.load(Ordering::Acquire) != value {
                std::hint::spin_loop();
            }
        }
        let now = Instant::now();
        batches.push((now - last).as_nanos() as f64 / BATCH as f64);
        last = now;
    }
    spread(&mut batches)
}

fn spread(values: &mut [f64]) -> Spread {
    values.sort_by(f64::total_cmp);
    let at = |quantile: f64| values[((values.len() - 1) as f64 * quantile).round() as usize];
    Spread { min: at(0.0), median: at(0.5), p99: at(0.99) }
}

pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Copies the same block again and again.
fn memcpy(size: usize, duration: Duration) -> f64 {
    let from = vec![1u8; size];
    let mut to = vec![0u8; size];
    let at_a_time = ((1 << 20) / size).max(1);
    let mut copied = 0;
    let begun = Instant::now();
    while begun.elapsed() < duration || copied == 0 {
        for _ in 0..at_a_time {
            black_box(&mut to).copy_from_slice(black_box(&from));
        }
        copied += at_a_time * size;
    }
    copied as f64 / begun.elapsed().as_nanos() as f64
}

/// Blocks of memory and as many others to copy them to, in turn: as a switch does it from one port's buffers to
/// another's. How much of it the caches hold is up to the number of blocks. In huge pages if the kernel gives some.
#[derive(Debug)]
pub struct Blocks {
    from: MmapMut,
    to: MmapMut,
    size: usize,
}

impl Blocks {
    /// `count` blocks of `size` bytes each, at least one of at least one byte.
    pub fn new(size: usize, count: usize) -> io::Result<Self> {
        let size = size.max(1);
        let area = || -> io::Result<MmapMut> {
            let mut area = MmapMut::map_anon(size * count.max(1))?;
            // Without transparent huge pages it is ordinary memory.
            let _ = area.advise(Advice::HugePage);
            area.fill(1);
            Ok(area)
        };
        Ok(Self { from: area()?, to: area()?, size })
    }

    /// Bytes that one turn reads; it writes as many.
    pub fn bytes(&self) -> u64 {
        self.from.len() as u64
    }

    /// Copies for about `duration`, whole turns after a first one that does not count; bytes per ns.
    pub fn copy(&mut self, duration: Duration) -> f64 {
        self.turn();
        let mut copied = 0;
        let begun = Instant::now();
        while begun.elapsed() < duration || copied == 0 {
            self.turn();
            copied += self.bytes();
        }
        copied as f64 / begun.elapsed().as_nanos() as f64
    }

    fn turn(&mut self) {
        for (to, from) in self.to.chunks_exact_mut(self.size).zip(self.from.chunks_exact(self.size)) {
            black_box(to).copy_from_slice(black_box(from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_positive_and_ordered() {
        let raw = measure(Duration::from_millis(40)).unwrap();
        assert_eq!(raw.memcpy.len(), COPY_SIZES.len());
        assert!(raw.memcpy.iter().all(|copying| copying.gbyte_s > 0.0), "{raw:?}");
        if let Some(Spread { min, median, p99 }) = raw.ping_pong_ns {
            assert!(0.0 < min && min <= median && median <= p99, "{raw:?}");
        }
    }

    #[test]
    fn blocks_are_copied() {
        let mut blocks = Blocks::new(1000, 7).unwrap();
        blocks.from[6999] = 2;
        assert_eq!(blocks.bytes(), 7000);
        assert!(blocks.copy(Duration::from_micros(1)) > 0.0);
        assert_eq!(blocks.to[..], blocks.from[..]);
    }

    #[test]
    fn a_spread_is_taken_from_sorted_values() {
        let mut values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(spread(&mut values), Spread { min: 0.0, median: 50.0, p99: 99.0 });
    }
}
