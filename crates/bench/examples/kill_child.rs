//! Kills a process of some name a moment after it has begun.
//!
//! New processes are found by their numbers, which the kernel counts up, so that even one that
//! lasts for milliseconds is found. Prints the moment as JSON. Fails if there was none.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;

/// Kills a process of some name a moment after it has begun.
#[derive(Debug, Parser)]
struct Arguments {
    /// Name of the process.
    name: String,
    /// Part of its environment.
    mark: String,
    /// Microseconds after which it is killed.
    #[arg(long, default_value_t = 0)]
    after_us: u64,
    /// Seconds to wait for it.
    #[arg(long, default_value_t = 10)]
    within: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let end = Instant::now() + Duration::from_secs(arguments.within);
    let mut seen = newest()?;
    // Processes that have begun and do not have the name yet, and when they were seen.
    let mut young: BTreeSet<(i32, Instant)> = BTreeSet::new();
    println!("looking");
    while Instant::now() < end {
        let last = newest()?;
        // Numbers begin again at the largest one.
        let first = if last < seen { 1 } else { seen + 1 };
        young.extend((first..=last).map(|pid| (pid, Instant::now())));
        seen = last;
        young.retain(|(_, begun)| begun.elapsed() < Duration::from_millis(100));
        for &(pid, begun) in &young {
            if is_wanted(pid, &arguments) && kill(pid, &arguments)? {
                println!("{}", json!({ "killed": pid, "after_us": begun.elapsed().as_micros() as u64 }));
                return Ok(());
            }
        }
    }
    bail!("no process {} began within {} s", arguments.name, arguments.within)
}

/// Returns the newest process number.
fn newest() -> Result<i32> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let last = text.split_whitespace().next_back().context("/proc/loadavg is empty")?;
    Ok(last.parse()?)
}

fn is_wanted(pid: i32, arguments: &Arguments) -> bool {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    read("comm").trim_ascii_end() == arguments.name.as_bytes()
        && String::from_utf8_lossy(&read("environ")).contains(&arguments.mark)
}

/// Kills a process unless it has become another program meanwhile.
fn kill(pid: i32, arguments: &Arguments) -> Result<bool> {
    let number = Pid::from_raw(pid).context("numbers begin at 1")?;
    // The number of a thread has no descriptor; its process is among the others.
    let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { return Ok(false) };
    thread::sleep(Duration::from_micros(arguments.after_us));
    Ok(is_wanted(pid, arguments) && pidfd_send_signal(process, Signal::KILL).is_ok())
}
