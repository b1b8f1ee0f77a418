//! CPU time as counters, and the share used between two readings.

use std::path::Path;
use std::time::Instant;

use taut_bench::agent::protocol::{Cpu, Kind};
use taut_host::kernel::utilisation::{self, CpuTimes};

/// CPU time that an end point has used.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfEndPoint {
    cpu: Cpu,
    at: Instant,
}

impl OfEndPoint {
    /// Takes a reading at this moment.
    pub(super) fn now(cpu: Cpu) -> Self {
        Self { cpu, at: Instant::now() }
    }

    /// Returns percent of one CPU used from `self` to `later`: by all CPUs of a guest, otherwise by
    /// the agent alone.
    pub(super) fn percent(self, later: Self, kind: Kind) -> Option<f64> {
        let moved = |of: fn(&Cpu) -> u64| of(&later.cpu).saturating_sub(of(&self.cpu)) as f64;
        let (used, time) = match kind {
            Kind::Guest => {
                let used = moved(|c| c.user_us) + moved(|c| c.system_us);
                let time = used + moved(|c| c.idle_us) + moved(|c| c.steal_us);
                (used * f64::from(later.cpu.cpus), time)
            }
            Kind::Netns | Kind::Host | Kind::Micro => {
                (moved(|c| c.process_us), later.at.duration_since(self.at).as_secs_f64() * 1e6)
            }
        };
        (time > 0.0).then(|| 100.0 * used / time)
    }
}

/// CPU time that the host, and the fabric on it, have used.
#[derive(Debug, Clone)]
pub(super) struct OfHost {
    cpus: CpuTimes,
    fabric_ns: Option<u64>,
    at: Instant,
}

impl OfHost {
    /// Reads the times of the pCPUs and of the fabric's threads.
    pub(super) fn now(fabric: Option<u32>) -> Option<Self> {
        let cpus = utilisation::read(Path::new("/")).ok()?;
        Some(Self { cpus, fabric_ns: fabric.and_then(process_ns), at: Instant::now() })
    }

    /// Returns percent of one CPU that the whole host used from `self` to `later`.
    pub(super) fn percent(&self, later: &Self) -> Option<f64> {
        later.cpus.percent_of_one_since(&self.cpus)
    }

    /// Returns percent of one CPU that the fabric used; none if it was not the same process all the
    /// time.
    pub(super) fn fabric_percent(&self, later: &Self) -> Option<f64> {
        let used = later.fabric_ns?.checked_sub(self.fabric_ns?)?;
        let time = later.at.duration_since(self.at).as_nanos() as f64;
        (time > 0.0).then(|| 100.0 * used as f64 / time)
    }
}

/// Returns the CPU time of all threads of a process in ns.
fn process_ns(pid: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |thread: std::fs::DirEntry| -> Option<u64> {
        std::fs::read_to_string(thread.path().join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    Some(threads.flatten().filter_map(of_thread).sum())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn near(actual: Option<f64>, wanted: f64) {
        assert!(actual.is_some_and(|actual| (actual - wanted).abs() < 1e-6), "{actual:?} is not {wanted}");
    }

    #[test]
    fn a_guest_is_measured_by_its_own_clock() {
        let at = Instant::now();
        let before = OfEndPoint { cpu: Cpu { cpus: 2, ..Cpu::default() }, at };
        let cpu = Cpu {
            cpus: 2,
            user_us: 300_000,
            system_us: 200_000,
            idle_us: 1_400_000,
            steal_us: 100_000,
            process_us: 1,
        };
        let after = OfEndPoint { cpu, at };
        near(before.percent(after, Kind::Guest), 50.0);
        assert_eq!(before.percent(before, Kind::Guest), None);
    }

    #[test]
    fn on_the_host_only_the_agent_counts() {
        let at = Instant::now();
        let before = OfEndPoint { cpu: Cpu::default(), at };
        let cpu = Cpu { cpus: 8, user_us: 9_000_000, process_us: 500_000, ..Cpu::default() };
        let after = OfEndPoint { cpu, at: at + Duration::from_secs(2) };
        near(before.percent(after, Kind::Netns), 25.0);
    }

    #[test]
    fn the_fabric_is_measured_while_it_is_the_same_process() {
        let at = Instant::now();
        let of = |fabric_ns, at| OfHost { cpus: CpuTimes::default(), fabric_ns, at };
        let before = of(Some(5_000_000), at);
        let later = at + Duration::from_secs(1);
        near(before.fabric_percent(&of(Some(505_000_000), later)), 50.0);
        assert_eq!(before.fabric_percent(&of(Some(1), later)), None, "another process");
        assert_eq!(before.fabric_percent(&of(None, later)), None, "it has ended");
        assert_eq!(before.percent(&of(None, later)), None, "no pCPU is known");
    }
}
