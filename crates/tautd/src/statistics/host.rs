//! The host: time of its pCPUs, waits for them, memory and swapping.

use taut_api::statistics::{Column, HostStatistics, Period};
use taut_history::{Clocks, FileError, History, Point, Reading, Values};
use taut_host::observe::load::{HostMemory, Load, Swapping};

use super::gauges::{Sums, average};

/// Key and name of the host.
pub(super) const KEY: &str = "host";

/// Times of pCPUs in ms: busy, idle, and stolen.
const BUSY: u8 = 0;
const IDLE: u8 = 1;
const STEAL: u8 = 2;
/// Time in which some task waited for a pCPU, in microseconds.
const WAITING: u8 = 3;
/// Time in which [`WAITING`] was read, in ms.
const WAITING_TIME: u8 = 4;
/// Memory over time, in KiB × s: in use, available, and swap space in use.
const USED: u8 = 5;
const AVAILABLE: u8 = 6;
const SWAP_USED: u8 = 7;
/// Time in which memory was read, in ms.
const MEMORY_TIME: u8 = 8;
/// Bytes that were read from swap, and written to it.
const SWAP_IN: u8 = 9;
const SWAP_OUT: u8 = 10;
/// Time in which both were read, in ms.
const SWAP_TIME: u8 = 11;
/// Counters that the daemon adds up itself.
const SUMS: [u8; 6] = [WAITING_TIME, USED, AVAILABLE, SWAP_USED, MEMORY_TIME, SWAP_TIME];

/// Returns a reading of the host's counters for the history.
pub(super) fn reading(load: &Load, sums: &mut Sums) -> Reading {
    let mut reading = Reading::new([(BUSY, load.busy_ms), (IDLE, load.idle_ms), (STEAL, load.steal_ms)]);
    if let Some(us) = load.waiting_us {
        reading.extend([(WAITING, us)]);
        sums.add_time(WAITING_TIME);
    }
    if let Some(memory) = load.memory {
        let HostMemory { available, swap_used, .. } = memory;
        for (number, bytes) in [(USED, memory.used()), (AVAILABLE, available), (SWAP_USED, swap_used)] {
            sums.add(number, bytes >> 10);
        }
        sums.add_time(MEMORY_TIME);
    }
    if let Some(Swapping { read, written }) = load.swap {
        reading.extend([(SWAP_IN, read), (SWAP_OUT, written)]);
        sums.add_time(SWAP_TIME);
    }
    reading.extend(sums.of(SUMS));
    reading
}

/// Returns the host's averages within so many milliseconds.
fn averages(growth: &Values, ms: u64) -> HostStatistics {
    let all = [BUSY, IDLE, STEAL].map(|number| growth.get(number)).iter().sum::<u64>();
    let cpu = |number| (all > 0).then(|| growth.get(number) as f64 * 100.0 / all as f64);
    // These go on while no daemon reads them.
    let read = |number, time| (growth.get(time) > 0).then(|| growth.per_second(number, ms));
    let bytes = |number| average(growth, number, MEMORY_TIME).map(|kib| kib * 1024.0);
    HostStatistics {
        covered_ms: ms,
        to_ms: 0,
        cpu_busy_percent: cpu(BUSY),
        cpu_idle_percent: cpu(IDLE),
        cpu_steal_percent: cpu(STEAL),
        cpu_waiting_percent: read(WAITING, WAITING_TIME).map(|us| us / 1e4),
        memory_used_bytes: bytes(USED),
        memory_available_bytes: bytes(AVAILABLE),
        swap_used_bytes: bytes(SWAP_USED),
        swap_in_bytes_per_s: read(SWAP_IN, SWAP_TIME),
        swap_out_bytes_per_s: read(SWAP_OUT, SWAP_TIME),
    }
}

/// Returns the host's averages over the period before now. Without two samples, none is known.
pub(super) fn statistics(
    history: &History,
    period: Period,
    now: Clocks,
) -> Result<HostStatistics, FileError> {
    let end = history.timeline().position(now.since_boot);
    let counted = history.counted(KEY, end.saturating_sub(period.ms()), end)?;
    Ok(counted.map_or(HostStatistics { to_ms: now.wall, ..averages(&Values::default(), 0) }, |counted| {
        let to_ms = history.timeline().wall(counted.to, now);
        HostStatistics { to_ms, ..averages(&counted.values, counted.ms()) }
    }))
}

/// Meaning of [`values`].
pub(super) const COLUMNS: [Column; 9] = [
    Column::CpuBusyPercent,
    Column::CpuIdlePercent,
    Column::CpuStealPercent,
    Column::CpuWaitingPercent,
    Column::MemoryUsedBytes,
    Column::MemoryAvailableBytes,
    Column::SwapUsedBytes,
    Column::SwapInBytesPerS,
    Column::SwapOutBytesPerS,
];

/// Returns the values of a point in the host's series.
pub(super) fn values(point: &Point) -> Vec<Option<f64>> {
    let averages = averages(&point.values, point.ms);
    vec![
        averages.cpu_busy_percent,
        averages.cpu_idle_percent,
        averages.cpu_steal_percent,
        averages.cpu_waiting_percent,
        averages.memory_used_bytes,
        averages.memory_available_bytes,
        averages.swap_used_bytes,
        averages.swap_in_bytes_per_s,
        averages.swap_out_bytes_per_s,
    ]
}

#[cfg(test)]
mod tests {
    use taut_history::thinning::USUAL;

    use super::*;
    use crate::statistics::gauges::Gauges;

    const CLOCKS: Clocks = Clocks { since_boot: 0, wall: 1_700_000_000_000 };

    #[test]
    fn averages_are_those_of_the_load() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::open(&folder.path().join("history.db"), USUAL, "a", CLOCKS).unwrap();
        let now = Clocks { since_boot: 60_000, wall: CLOCKS.wall + 60_000 };
        let period: Period = "30s".parse().unwrap();
        let before = statistics(&history, period, now).unwrap();
        assert_eq!((before.covered_ms, before.cpu_busy_percent, before.to_ms), (0, None, now.wall));
        let mut gauges = Gauges::default();
        for second in 1..=60 {
            let load = Load {
                busy_ms: 500 * second,
                idle_ms: 1400 * second,
                steal_ms: 100 * second,
                waiting_us: (second != 45).then_some(250_000 * second),
                memory: Some(HostMemory {
                    total: (3 << 40) + (1 << 30),
                    available: 1 << 30,
                    ..HostMemory::default()
                }),
                swap: Some(Swapping { read: 8192 * second, written: 0 }),
            };
            let reading = reading(&load, gauges.begin(KEY, 1000 * second));
            history.record(1000 * second, KEY, KEY, &reading);
        }
        let found = statistics(&history, period, now).unwrap();
        assert_eq!((found.covered_ms, found.to_ms), (30_000, now.wall));
        let cpu = [found.cpu_busy_percent, found.cpu_idle_percent, found.cpu_steal_percent];
        assert_eq!(cpu, [Some(25.0), Some(70.0), Some(5.0)]);
        let memory = [found.memory_used_bytes, found.memory_available_bytes, found.swap_used_bytes];
        assert_eq!(memory, [Some(3.0 * 1024_f64.powi(4)), Some(1024_f64.powi(3)), Some(0.0)]);
        assert_eq!(found.swap_in_bytes_per_s, Some(8192.0));
        let end = history.timeline().position(60_000);
        let series = history.series(KEY, end - 30_000, end, 300).unwrap();
        let waiting: Vec<_> = series.points.iter().map(|point| values(point)[3]).collect();
        assert_eq!((waiting[14], waiting[29]), (None, Some(25.0)), "nobody read it in second 45");
        assert_eq!(found.cpu_waiting_percent, Some(25.0), "it did not begin again");
    }
}
