//! Measures the CPU time of reading a page of memory that has rested for a second. Prints JSON.
//!
//! On some virtual machines this takes several microseconds. A program that wakes once a second
//! then takes many times as long as one that does not rest.

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Number of pages: 4 MiB.
const PAGES: usize = 1024;
/// Number of rests.
const RESTS: usize = 5;

fn main() {
    let memory = black_box(vec![1_u8; PAGES * PAGE]);
    let mut costs: Vec<f64> = (0..RESTS)
        .map(|_| {
            sleep(Duration::from_secs(1));
            let before = cpu_us();
            let read: usize = memory.iter().step_by(PAGE).map(|byte| usize::from(black_box(*byte))).sum();
            assert_eq!(read, PAGES);
            (cpu_us() - before) / PAGES as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    println!("{}", json!({ "rests": RESTS, "us_per_page": costs[RESTS / 2] }));
}

/// CPU time of this thread in µs.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
