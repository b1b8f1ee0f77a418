//! CPU time used so far.

use std::fs;
use std::io;

use rustix::time::{ClockId, clock_gettime};

use crate::agent::protocol::Cpu;

/// Length of a tick of `/proc/stat` in µs: 1/100 s on every architecture.
const TICK_US: u64 = 10_000;

/// Reads the CPU times of the machine and of this process.
pub fn read() -> io::Result<Cpu> {
    let machine = parse(&fs::read_to_string("/proc/stat")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no usable `cpu` line"))?;
    let own = clock_gettime(ClockId::ProcessCPUTime);
    let process_us = own.tv_sec as u64 * 1_000_000 + own.tv_nsec as u64 / 1000;
    Ok(Cpu { process_us, ..machine })
}

/// Reads the sum over all CPUs from the text of `/proc/stat`.
fn parse(stat: &str) -> Option<Cpu> {
    let numbered = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    let cpus = stat.lines().filter(numbered).count() as u32;
    let sum = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let us: Vec<u64> =
        sum.split_whitespace().map_while(|n| n.parse::<u64>().ok()).map(|n| n * TICK_US).collect();
    // Guest time (fields nine and ten) is already part of user and nice.
    let [user, nice, system, idle, disk, irq, softirq, steal, ..] = us[..] else { return None };
    Some(Cpu {
        cpus,
        user_us: user + nice,
        system_us: system + irq + softirq,
        idle_us: idle + disk,
        steal_us: steal,
        process_us: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_read() {
        let text = "cpu  10 1 20 300 5 2 3 7 9 9\ncpu0 5 1 10 150 5 2 3 7 9 9\ncpu1 5 0 10 150 0 0 0 0 0 0\nintr 7\n";
        let wanted = Cpu {
            cpus: 2,
            user_us: 110_000,
            system_us: 250_000,
            idle_us: 3_050_000,
            steal_us: 70_000,
            process_us: 0,
        };
        assert_eq!(parse(text), Some(wanted));
        assert_eq!(parse("cpu0 1 2 3\n"), None);
        assert_eq!(parse("cpu  1 2 3\n"), None);
    }
}
