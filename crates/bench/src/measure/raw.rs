//! Limits of this machine without any switch, to compare other results with.
//!
//! The time that a cache line takes between two CPUs is a lower bound of any latency between two
//! VMs. The speed of copying memory is an upper bound of any throughput. Both change when a
//! hypervisor moves the machine, so they are measured in the same run as the results.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Bytes of the blocks copied: they fit in the first-level cache, the second, maybe the third,
/// none.
pub const COPY_SIZES: [usize; 4] = [1518, 64 << 10, 1 << 20, 64 << 20];

/// Round trips between two readings of the clock.
const BATCH: u64 = 1000;

/// Raw figures of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    /// The CPUs between which the cache line goes; twice the same if this process may use one only.
    pub cpus: [u32; 2],
    /// Round trip of a cache line in ns, averaged over batches of 1000: fastest, median and 99th
    /// percentile batch. None with one CPU.
    pub ping_pong_ns: Option<Spread>,
    /// Copying speed by block size.
    pub memcpy: Vec<Copying>,
}

/// Three points of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Copying speed of one block size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Copying {
    /// Bytes per copy.
    pub size: usize,
    /// Copied bytes per nanosecond, that is GB/s.
    pub gbyte_s: f64,
}

/// Measures all of it in about `duration`.
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

/// Returns the round trip of a cache line between two CPUs in ns.
///
/// A hypervisor may move CPUs at any time. Comparisons of two switches therefore probe before and
/// after each measurement, and compare only those with equal probes.
pub fn placement(cpus: [usize; 2], duration: Duration) -> io::Result<Spread> {
    ping_pong(cpus, duration)
}

/// Lets two threads on two CPUs increment the same word in turn.
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

/// Copies the same block again and again. Returns bytes per ns.
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

/// Source and destination blocks, copied in order, as a switch copies from the buffers of one port
/// to those of another. The number of blocks decides which cache can hold them. The kernel may give
/// huge pages for them.
#[derive(Debug)]
pub struct Blocks {
    from: MmapMut,
    to: MmapMut,
    size: usize,
}

impl Blocks {
    /// Allocates `count` source and destination blocks of `size` bytes each, at least one of one
    /// byte.
    pub fn new(size: usize, count: usize) -> io::Result<Self> {
        let size = size.max(1);
        let area = || -> io::Result<MmapMut> {
            let mut area = MmapMut::map_anon(size * count.max(1))?;
            // Fails without support for transparent huge pages; ordinary pages are used then.
            let _ = area.advise(Advice::HugePage);
            area.fill(1);
            Ok(area)
        };
        Ok(Self { from: area()?, to: area()?, size })
    }

    /// Returns the bytes that one pass reads. A pass writes as many.
    pub fn bytes(&self) -> u64 {
        self.from.len() as u64
    }

    /// Copies whole passes for about `duration`, after one that is not counted. Returns bytes per
    /// ns.
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
