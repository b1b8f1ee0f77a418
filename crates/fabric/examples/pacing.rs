//! Measures shaping in virtual time: the fabric's gate, shaper and queue with a simulated clock.
//!
//! Rates at which a frame takes minutes can be measured, too. Prints one JSON object for each rate,
//! size and direction.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_api::Bytes;
use taut_api::fabric::counters::FILE_SIZE;
use taut_api::fabric::{ForeignFd, PortId};
use taut_api::shaping::Shape;
use taut_api::units::BitRate;
use taut_fabric::port::paced::Paced;
use taut_fabric::port::{Fresh, Put, RxEnd, stream};
use taut_fabric::shaping::gate::Gate;
use taut_fabric::shaping::shaper::Shaper;
use taut_fabric::sys::counters::PortBlock;
use taut_virtq::counters::SharedWords;

const RATES: [u64; 12] = [
    1_000,
    10_000,
    64_000,
    256_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
    40_000_000_000,
    100_000_000_000,
];
const SIZES: [usize; 3] = [64, 1518, 65_536];
/// Largest lateness of a worker.
const LATE_NS: u64 = 100_000;

/// Times at which frames passed, with the number of bytes passed by then.
type Passed = Vec<(Instant, u64)>;

fn main() -> anyhow::Result<()> {
    for average in RATES {
        for size in SIZES {
            // Five milliseconds' worth is more than the tolerance.
            let burst = (average / 8 / 200).max(4 * size as u64);
            let peak = (average * 10).min(100_000_000_000);
            let shape = Shape { average: BitRate(average), peak: Some(BitRate(peak)), burst: Bytes(burst) };
            let used_up = if peak > average {
                (burst as f64 * peak as f64 / (peak - average) as f64) as u64
            } else {
                0
            };
            // Measure a hundredth of a second, or sixteen frames, after the burst.
            let bytes = used_up + (average / 8 / 100).max(16 * size as u64);
            report("to-switch", &shape, size, used_up, &to_switch(&shape, size, bytes));
            report("to-guest", &shape, size, used_up, &to_guest(&shape, size, bytes)?);
        }
    }
    Ok(())
}

/// The worker's lateness: deterministic and evenly distributed.
fn late(turn: u64) -> Duration {
    Duration::from_nanos((turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % LATE_NS)
}

fn shaper(shape: &Shape, now: Instant) -> Mutex<Shaper> {
    let mut shaper = Shaper::default();
    shaper.set(Some(*shape), now);
    Mutex::new(shaper)
}

/// A guest's ring of 256 frames that is always full.
fn to_switch(shape: &Shape, size: usize, bytes: u64) -> Passed {
    let mut now = Instant::now();
    let shaper = shaper(shape, now);
    let (mut passed, mut total, mut turn) = (Passed::new(), 0, 0);
    loop {
        let mut gate = Gate::new(Some(&shaper), now);
        let (frames, later) = gate.pass(std::iter::repeat_n(size, 256));
        (0..frames).for_each(|_| gate.spend(size));
        if frames > 0 {
            total += (frames * size) as u64;
            passed.push((now, total));
        }
        if let Some(later) = later {
            if total >= bytes {
                return passed;
            }
            turn += 1;
            now = later + late(turn);
        }
    }
}

/// A queue that is always full, and a guest that takes everything at once.
fn to_guest(shape: &Shape, size: usize, bytes: u64) -> anyhow::Result<Passed> {
    let mut now = Instant::now();
    let mut paced = Paced::new(Arc::new(shaper(shape, now)));
    let (ours, mut guest) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    guest.set_nonblocking(true)?;
    let mut end = RxEnd::Stream(stream::Rx::new(Arc::new(ForeignFd::own(ours.into()))));
    let words = memfd_create("counters", MemfdFlags::CLOEXEC)?;
    ftruncate(&words, FILE_SIZE)?;
    let words = Arc::new(SharedWords::map(words.as_fd(), FILE_SIZE as usize / 8)?);
    let counters = PortBlock::new(&words, PortId(0));
    let (frame, mut sink) = (vec![0; size], vec![0; 1 << 20]);
    let (mut passed, mut fresh, mut turn, mut total) = (Passed::new(), Fresh::default(), 0, 0);
    loop {
        // Add frames until the queue or the socket is full.
        let mut direct = 0;
        loop {
            match paced.put_bytes(&mut end, &frame, now) {
                Put::Done => direct += 1,
                Put::Queued => {}
                _ => break,
            }
        }
        let later = paced.drain(Some(&mut end), &mut fresh, now, &counters);
        let frames = direct + std::mem::take(&mut fresh).frames;
        if frames > 0 {
            total += frames * size as u64;
            passed.push((now, total));
        }
        let mut taken = false;
        while matches!(guest.read(&mut sink), Ok(1..)) {
            taken = true;
        }
        // Repeat while frames pass: there may be room for more at the same time.
        if let (false, Some(later)) = (taken, later) {
            if total >= bytes {
                return Ok(passed);
            }
            turn += 1;
            now = later + late(turn);
        }
    }
}

/// The two figures that `taut bench shaping` measures in real time.
fn report(direction: &str, shape: &Shape, size: usize, used_up: u64, passed: &Passed) {
    let rate = shape.average.0 as f64 / 8.0;
    let start = passed[0].0;
    let at = |when: Instant| (when - start).as_secs_f64();
    let (mut most, mut anywhere, mut least, mut before) = (0.0_f64, 0.0_f64, f64::MAX, 0);
    let (mut first, mut last) = (None, (start, 0));
    for &(when, total) in passed {
        let earned = rate * at(when);
        least = least.min(before as f64 - earned);
        most = most.max(total as f64 - earned);
        anywhere = anywhere.max(total as f64 - earned - least);
        before = total;
        // Frames that pass at one time count as one event.
        if when > last.0 && last.1 > used_up && first.is_none() {
            first = Some(last);
        }
        last = (when, total);
    }
    let (since, from) = first.unwrap_or(last);
    let found = (last.1 - from) as f64 / (at(last.0) - at(since));
    let percent = |found: f64, wanted: f64| 100.0 * (found - wanted) / wanted;
    let [most, anywhere] = [most, anywhere].map(|found| percent(found, shape.burst.0 as f64));
    let burst_error = if most.abs() > anywhere.abs() { most } else { anywhere };
    // A burst cannot be observed if the peak rate is not above the average.
    let burst_error =
        if shape.peak() > shape.average { format!("{burst_error:.4}") } else { "null".to_owned() };
    println!(
        r#"{{"direction":"{direction}","average":{},"size":{size},"virtual_s":{:.3},"rate_error_percent":{:.4},"burst_error_percent":{burst_error}}}"#,
        shape.average.0,
        at(last.0),
        percent(found, rate),
    );
}
