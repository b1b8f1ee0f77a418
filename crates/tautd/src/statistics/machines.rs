//! VMs of this host, also those that other programs have started: times of their vCPUs and of their
//! other threads, memory and disks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use taut_api::Name;
use taut_api::statistics::{Column, VcpuStatistics, VmStatistics};
use taut_history::{Counted, History, Point, Reading, Values};
use taut_host::observe::processes::{DiskUse, MOST_LOOKS, Machine, MemoryUse, Times};

use super::counts::Counts;
use super::gauges::{Gauges, Sums, average};

/// Begins of the keys of taut's VMs and of others; a name or UUID follows.
const OWN: &str = "vm/";
const FOREIGN: &str = "machine/";
/// Most vCPUs of a machine that are sampled. Each takes two numbers of counters.
const MOST_VCPUS: u32 = 120;
/// Resident memory: sum over time, in KiB × s. MiB would round small machines much, and in bytes a
/// year of a large one would not fit.
const RESIDENT: u8 = 240;
/// Memory that is swapped out: sum over time, in KiB × s.
const SWAPPED: u8 = 241;
/// Time in which memory was read, in ms.
const MEMORY_TIME: u8 = 242;
/// Time in which CPU limits kept the machine from running, in nanoseconds.
const THROTTLED: u8 = 243;
/// Time in which [`THROTTLED`] was read, in ms.
const THROTTLED_TIME: u8 = 244;
/// Bytes read from disks.
const DISK_READ: u8 = 245;
/// Bytes written to disks.
const DISK_WRITTEN: u8 = 246;
/// Time in which both were read, in ms.
const DISK_TIME: u8 = 247;
/// Time that vCPUs waited for block devices, in nanoseconds.
const PAGED: u8 = 248;
/// Time in which [`PAGED`] was read, in ms.
const PAGED_TIME: u8 = 249;
/// Numbers of the counters of other threads.
const OTHERS: u8 = 250;
/// Counters that the daemon adds up itself.
const SUMS: [u8; 6] = [RESIDENT, SWAPPED, MEMORY_TIME, THROTTLED_TIME, DISK_TIME, PAGED_TIME];
/// Number of times that a machine is seen before it counts as foreign: the daemon learns of the
/// processes of its own VMs a bit later.
const LOOKS_BEFORE_FOREIGN: u32 = 5;
const _: () = assert!(LOOKS_BEFORE_FOREIGN <= MOST_LOOKS, "more looks are not counted");

/// Most foreign VMs that have samples, those that have ended included. Beyond it, the one that
/// ended first is forgotten: any user of the host can start programs that look like VMs, one after
/// the other.
pub(super) const MOST_FOREIGN: usize = 4096;

/// Key and name of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) key: String,
    pub(super) name: String,
}

/// Times of a VM at the last sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VmTimes {
    /// Name of the VM, printable and of at most 128 characters. Foreign VMs may share one.
    pub(crate) name: String,
    /// Identifies the VM among all that run. It is the name of one of taut's. Of a foreign VM it is
    /// the UUID, or `pid:` and the process if that is no UUID or an older VM has it as well.
    pub(crate) id: String,
    /// True if another program has started the VM.
    pub(crate) foreign: bool,
    /// Its process.
    pub(crate) pid: u32,
    /// Times of its vCPUs, the first 120 of them.
    pub(crate) vcpus: BTreeMap<u32, Times>,
    /// Times of its other threads, since the daemon first saw them.
    pub(crate) others: Times,
    /// Time in which CPU limits kept it from running, in nanoseconds, since the daemon first saw
    /// it. Absent without a controller of CPU time.
    pub(crate) throttled_ns: Option<u64>,
    /// Memory of its process.
    pub(crate) memory: Option<MemoryUse>,
}

/// The VMs of a sample, in the order of their processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Sampled {
    /// The VMs with their names, which later samples share.
    pub(super) machines: Vec<(Arc<Machine>, Arc<Named>)>,
    /// Number of VMs that the sample has left out, because there are too many.
    pub(super) left_out: usize,
}

impl Sampled {
    /// Returns the processes of the VMs, by the key that they have in the history.
    pub(super) fn processes(&self) -> BTreeMap<String, u32> {
        self.machines.iter().map(|(machine, named)| (named.key.clone(), machine.pid)).collect()
    }

    /// Returns whether these are the same VMs as those of another sample, with the same names.
    pub(super) fn has_names_of(&self, other: &Self) -> bool {
        let (names, others) = (self.machines.iter(), other.machines.iter());
        let is_same = |((_, one), (_, other)): (&(_, Arc<_>), &(_, Arc<_>))| Arc::ptr_eq(one, other);
        self.machines.len() == other.machines.len() && names.zip(others).all(is_same)
    }

    /// Returns the name that a VM had in this sample, if its process has the same identity. `at` is
    /// the place where it is in this sample unless VMs have begun or ended.
    pub(super) fn name_of(&self, at: usize, machine: &Arc<Machine>) -> Option<Arc<Named>> {
        // Most VMs are at the same place, and have not changed.
        if let Some((_, named)) = self.machines.get(at).filter(|(last, _)| Arc::ptr_eq(last, machine)) {
            return Some(named.clone());
        }
        let at = self.machines.binary_search_by_key(&machine.pid, |(sampled, _)| sampled.pid).ok()?;
        let (sampled, named) = &self.machines[at];
        let is_same = sampled.started == machine.started
            && (&sampled.name, &sampled.uuid) == (&machine.name, &machine.uuid);
        is_same.then(|| named.clone())
    }

    /// Returns the times of the VMs: first taut's own, then the others, the oldest first.
    pub(super) fn times(&self) -> Vec<VmTimes> {
        let mut sampled: Vec<_> = self.machines.iter().collect();
        sampled.sort_by_key(|(machine, named)| (is_foreign(&named.key), machine.started, machine.pid));
        let mut ids = BTreeSet::new();
        let identified = |(machine, named): &(Arc<Machine>, Arc<Named>)| {
            let Machine { pid, others, throttled_ns, memory, .. } = **machine;
            let foreign = is_foreign(&named.key);
            let by_process = || format!("pid:{pid}");
            let id = if foreign { machine.uuid.as_deref() } else { Some(named.name.as_str()) };
            let id = id.map(str::to_owned).filter(|id| !ids.contains(id)).unwrap_or_else(by_process);
            ids.insert(id.clone());
            let vcpus = machine.vcpus.range(..MOST_VCPUS).map(|(vcpu, of)| (*vcpu, of.times)).collect();
            let name = named.name.clone();
            VmTimes { name, id, foreign, pid, vcpus, others, throttled_ns, memory }
        };
        sampled.into_iter().map(identified).collect()
    }
}

impl Named {
    /// Names a machine: as taut does if it is one of taut's, or else by its command line, and by
    /// its process and the start of that, because several machines may have one name. `own` are
    /// taut's, by process. Returns nothing for a machine that may still turn out to be taut's.
    pub(super) fn of(machine: &Machine, own: &BTreeMap<u32, Name>) -> Option<Self> {
        let Machine { pid, started, .. } = *machine;
        if let Some(name) = own.get(&pid) {
            return Some(Self { key: format!("{OWN}{name}"), name: name.to_string() });
        }
        let name = machine.name.as_deref().map_or_else(|| format!("process {pid}"), str::to_owned);
        let id = machine.uuid.as_deref().unwrap_or(&name);
        let key = format!("{FOREIGN}{id}/{started}/{pid}");
        (machine.looks >= LOOKS_BEFORE_FOREIGN).then_some(Self { key, name })
    }
}

/// Records a reading of a machine's counters. A reading for which descriptors or memory were short
/// is left out. Its counters would stand still, and the next reading would have their growth of
/// several seconds in one. Without it, that growth counts for all of the time between two complete
/// readings, and a long shortage is a gap in charts.
pub(super) fn record(
    history: &mut History,
    gauges: &mut Gauges,
    since_boot: u64,
    Named { key, name }: &Named,
    machine: &Machine,
) {
    if machine.complete {
        history.record(since_boot, key, name, &reading(machine, gauges.begin(key, since_boot)));
    }
}

/// Returns a reading of a machine's counters for the history. `sums` are those of this machine.
fn reading(machine: &Machine, sums: &mut Sums) -> Reading {
    let mut reading = Reading::default();
    let mut put = |number: u8, times: Times| {
        reading.extend([(number, times.ran_ns), (number + 1, times.waited_ns)]);
    };
    for (&vcpu, of) in machine.vcpus.range(..MOST_VCPUS) {
        put(2 * vcpu as u8, of.times);
    }
    put(OTHERS, machine.others);
    if let Some(MemoryUse { resident, swapped, .. }) = machine.memory {
        sums.add(RESIDENT, resident >> 10);
        sums.add(SWAPPED, swapped >> 10);
        sums.add_time(MEMORY_TIME);
    }
    if let Some(ns) = machine.throttled_ns {
        reading.extend([(THROTTLED, ns)]);
        sums.add_time(THROTTLED_TIME);
    }
    if let Some(ns) = machine.paged_ns {
        reading.extend([(PAGED, ns)]);
        sums.add_time(PAGED_TIME);
    }
    if let Some(DiskUse { read, written, .. }) = machine.disk {
        reading.extend([(DISK_READ, read), (DISK_WRITTEN, written)]);
        sums.add_time(DISK_TIME);
    }
    reading.extend(sums.of(SUMS));
    reading
}

/// Values of a machine beside the times of its threads.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rest {
    throttled_percent: Option<f64>,
    paged_percent: Option<f64>,
    memory_bytes: Option<f64>,
    swapped_bytes: Option<f64>,
    disk_read_bytes_per_s: Option<f64>,
    disk_written_bytes_per_s: Option<f64>,
}

impl Rest {
    /// Returns the averages of a growth within so many milliseconds. Those of disks are over all of
    /// that time, because the kernel counts their bytes also while no daemon runs. The others are
    /// over the time in which a daemon has read them. A value that no daemon has read is absent.
    fn of(growth: &Values, ms: u64) -> Self {
        let bytes = |sum| average(growth, sum, MEMORY_TIME).map(|kib| kib * 1024.0);
        let of_disk = |number| (growth.get(DISK_TIME) > 0).then(|| growth.per_second(number, ms));
        Self {
            throttled_percent: average(growth, THROTTLED, THROTTLED_TIME).map(|ns| ns / 1e7),
            paged_percent: average(growth, PAGED, PAGED_TIME).map(|ns| ns / 1e7),
            memory_bytes: bytes(RESIDENT),
            swapped_bytes: bytes(SWAPPED),
            disk_read_bytes_per_s: of_disk(DISK_READ),
            disk_written_bytes_per_s: of_disk(DISK_WRITTEN),
        }
    }
}

/// Returns whether this is the key of a foreign machine.
pub(super) fn is_foreign(key: &str) -> bool {
    key.starts_with(FOREIGN)
}

/// Returns whether this is the key of a machine.
pub(super) fn is_key(key: &str) -> bool {
    key.starts_with(OWN) || key.starts_with(FOREIGN)
}

/// Meaning of [`values`].
pub(super) const COLUMNS: [Column; 8] = [
    Column::RunPercent,
    Column::ReadyPercent,
    Column::OthersPercent,
    Column::ThrottledPercent,
    Column::MemoryBytes,
    Column::SwappedBytes,
    Column::DiskReadBytesPerS,
    Column::DiskWrittenBytesPerS,
];

/// Returns the values of a point in a machine's series.
pub(super) fn values(point: &Point) -> Vec<Option<f64>> {
    let percent = |number| percent(&point.values, point.ms, number);
    let of_vcpus = |first: u8| (first..2 * MOST_VCPUS as u8).step_by(2).map(percent).sum::<f64>();
    let rest = Rest::of(&point.values, point.ms);
    vec![
        Some(of_vcpus(0)),
        Some(of_vcpus(1)),
        Some(percent(OTHERS)),
        rest.throttled_percent,
        rest.memory_bytes,
        rest.swapped_bytes,
        rest.disk_read_bytes_per_s,
        rest.disk_written_bytes_per_s,
    ]
}

/// Returns the times of a machine. `running` are the processes of those that run, by key.
pub(super) fn statistics(counts: Counts, running: &BTreeMap<String, u32>) -> VmStatistics {
    let Counts { key, name, counted, to_ms } = counts;
    let vcpus = vcpus(&counted);
    let rest = Rest::of(&counted.values, counted.ms());
    VmStatistics {
        name,
        foreign: is_foreign(&key),
        pid: running.get(&key).copied(),
        covered_ms: counted.ms(),
        to_ms,
        run_percent: vcpus.iter().map(|vcpu| vcpu.run_percent).sum(),
        ready_percent: vcpus.iter().map(|vcpu| vcpu.ready_percent).sum(),
        vcpus,
        others_percent: percent(&counted.values, counted.ms(), OTHERS),
        throttled_percent: rest.throttled_percent,
        paged_percent: rest.paged_percent,
        memory_bytes: rest.memory_bytes,
        swapped_bytes: rest.swapped_bytes,
        disk_read_bytes_per_s: rest.disk_read_bytes_per_s,
        disk_written_bytes_per_s: rest.disk_written_bytes_per_s,
    }
}

/// Returns nanoseconds of a counter in percent of the time in which it has grown.
fn percent(growth: &Values, ms: u64, number: u8) -> f64 {
    growth.per_second(number, ms) / 1e7
}

/// Returns the times of each vCPU that has ever run, and of those before it.
fn vcpus(counted: &Counted) -> Vec<VcpuStatistics> {
    let of_vcpus = counted.totals.iter().map(|(number, _)| number);
    let last = of_vcpus.filter(|number| u32::from(*number) < 2 * MOST_VCPUS).max();
    let count = last.map_or(0, |number| number / 2 + 1);
    let percent = |number| percent(&counted.values, counted.ms(), number);
    let each = |vcpu: u8| VcpuStatistics {
        vcpu: u32::from(vcpu),
        run_percent: percent(2 * vcpu),
        ready_percent: percent(2 * vcpu + 1),
    };
    (0..count).map(each).collect()
}

#[cfg(test)]
mod tests {
    use taut_history::thinning::USUAL;
    use taut_history::{Clocks, History};
    use taut_host::observe::processes::Vcpu;

    use super::*;
    use crate::statistics::counts;

    const CLOCKS: Clocks = Clocks { since_boot: 0, wall: 1_700_000_000_000 };

    fn machine(pid: u32, second: u64) -> Machine {
        let times = |run: u64, wait: u64| Times {
            ran_ns: run * 10_000_000 * second,
            waited_ns: wait * 10_000_000 * second,
        };
        let vcpu = |run, wait| Vcpu { tid: 1, times: times(run, wait) };
        Machine {
            pid,
            started: 99,
            threads: 4,
            looks: LOOKS_BEFORE_FOREIGN,
            name: Some("db".into()),
            uuid: Some("6ba7".into()),
            vcpus: [(0, vcpu(50, 50)), (1, vcpu(25, 0)), (MOST_VCPUS, vcpu(10, 0))].into(),
            others: times(5, 1),
            throttled_ns: Some(200_000_000 * second),
            paged_ns: (second >= 20).then_some(60_000_000 * second),
            memory: Some(MemoryUse {
                resident: (1 << 30) + ((second % 2) << 29),
                swapped: 3 << 20,
                ..MemoryUse::default()
            }),
            disk: Some(DiskUse { read: 4096 * second, written: 512 * second, ..DiskUse::default() }),
            complete: true,
        }
    }

    #[test]
    fn times_are_percents_of_the_period() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut history = History::open(&path, USUAL, "a", CLOCKS).unwrap();
        let named = Named::of(&machine(7, 0), &BTreeMap::new()).unwrap();
        assert_eq!((named.key.as_str(), named.name.as_str()), ("machine/6ba7/99/7", "db"));
        let mut gauges = Gauges::default();
        for second in 1..=60 {
            let mut machine = machine(7, second);
            // For a while, the daemon cannot read some of it.
            if (40..45).contains(&second) {
                (machine.memory, machine.throttled_ns) = (None, Some(200_000_000 * 39));
            }
            record(&mut history, &mut gauges, 1000 * second, &named, &machine);
        }
        let now = Clocks { since_boot: 60_000, wall: CLOCKS.wall + 60_000 };
        let running = BTreeMap::from([(named.key.clone(), 7)]);
        let [db] = counts::all(&history, "30s", now, is_key).try_into().unwrap();
        let db = statistics(db, &running);
        assert_eq!((db.name.as_str(), db.foreign, db.pid), ("db", true, Some(7)));
        assert_eq!((db.covered_ms, db.to_ms), (30_000, CLOCKS.wall + 60_000));
        let close = |percent: f64, expected: f64| (percent - expected).abs() < 1e-6;
        assert!(close(db.throttled_percent.unwrap(), 20.0) && close(db.paged_percent.unwrap(), 6.0));
        let memory = db.memory_bytes.unwrap() / f64::from(1 << 30);
        assert!((memory - 1.25).abs() < 0.02, "{memory} GiB, without the seconds in which it was not read");
        assert!(close(db.swapped_bytes.unwrap(), f64::from(3 << 20)));
        let disk = [db.disk_read_bytes_per_s, db.disk_written_bytes_per_s].map(Option::unwrap);
        assert!(close(disk[0], 4096.0) && close(disk[1], 512.0));
        assert!(
            close(db.run_percent, 75.0) && close(db.ready_percent, 50.0) && close(db.others_percent, 5.0)
        );
        let each: Vec<_> = db.vcpus.iter().map(|vcpu| (vcpu.vcpu, vcpu.run_percent.round())).collect();
        assert_eq!(each, [(0, 50.0), (1, 25.0)], "others are not sampled");
        let position = history.timeline().position(60_000);
        let series = history.series(&named.key, position - 30_000, position, 300).unwrap();
        assert_eq!(series.points.len(), 30);
        let last = values(series.points.last().unwrap()).into_iter().map(|value| value.unwrap().round());
        let gib = f64::from(1 << 30);
        assert!(last.eq([75.0, 50.0, 5.0, 20.0, gib, f64::from(3 << 20), 4096.0, 512.0]));
        assert_eq!(values(&series.points[11])[4], None, "memory was not read then");
        let nameless = Machine { name: None, uuid: None, ..machine(9, 0) };
        assert_eq!(Named::of(&nameless, &BTreeMap::new()).unwrap().name, "process 9");
        let young = Machine { looks: LOOKS_BEFORE_FOREIGN - 1, ..machine(9, 0) };
        assert_eq!(Named::of(&young, &BTreeMap::new()), None, "it may be taut's");
        let own = BTreeMap::from([(9, "web1".parse().unwrap())]);
        let named = Named::of(&young, &own).map(|named| (named.key, named.name));
        assert_eq!(named, Some(("vm/web1".to_owned(), "web1".to_owned())));
        // A copy of a machine that began at the same time has samples of its own.
        assert_ne!(Named::of(&machine(8, 0), &own), Named::of(&machine(7, 0), &own));
    }

    #[test]
    fn counters_that_a_new_daemon_cannot_read_at_first_count_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::open(&folder.path().join("history.db"), USUAL, "a", CLOCKS).unwrap();
        let key = "vm/db";
        let mut gauges = Gauges::default();
        for second in 1..=60 {
            let mut machine = machine(7, second);
            if second == 31 {
                gauges = Gauges::default();
            }
            // The new daemon has no free descriptors.
            if (31..34).contains(&second) {
                (machine.vcpus, machine.disk) = (BTreeMap::new(), None);
            }
            history.record(1000 * second, key, "db", &reading(&machine, gauges.begin(key, 1000 * second)));
        }
        let now = Clocks { since_boot: 60_000, wall: CLOCKS.wall + 60_000 };
        let [db] = counts::all(&history, "40s", now, is_key).try_into().unwrap();
        let db = statistics(db, &BTreeMap::new());
        let found = [db.run_percent, db.ready_percent, db.disk_read_bytes_per_s.unwrap()];
        assert_eq!((db.covered_ms, found.map(f64::round)), (40_000, [75.0, 50.0, 4096.0]));
        let memory = db.memory_bytes.unwrap() / f64::from(1 << 30);
        assert!((memory - 1.25).abs() < 0.02, "{memory} GiB: sums begin again with the daemon");
    }

    #[test]
    fn rates_after_a_shortage_are_those_of_all_of_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::open(&folder.path().join("history.db"), USUAL, "a", CLOCKS).unwrap();
        let named = Named { key: "vm/db".to_owned(), name: "db".to_owned() };
        let mut gauges = Gauges::default();
        for second in 1..=60 {
            let mut machine = machine(7, second);
            // One reading is short of descriptors, and later those of ten seconds are.
            if second == 10 || (31..=40).contains(&second) {
                let last = if second == 10 { 9 } else { 30 };
                machine = Machine { memory: None, disk: None, complete: false, ..self::machine(7, last) };
            }
            record(&mut history, &mut gauges, 1000 * second, &named, &machine);
        }
        let position = history.timeline().position(60_000);
        let series = history.series(&named.key, position - 59_000, position, 300).unwrap();
        for point in &series.points {
            let [run, ready, others, throttled, _, _, read, _] = values(point).try_into().unwrap();
            let found = [run, ready, others, throttled, read].map(|value| value.map(f64::round));
            assert_eq!(found, [75.0, 50.0, 5.0, 20.0, 4096.0].map(Some), "at {}", point.to);
        }
        let covered: u64 = series.points.iter().map(|point| point.ms).sum();
        assert_eq!((series.points.len(), covered), (59 - 1 - 11, 59_000 - 11_000), "the chart has a gap");
        // A period that begins or ends in the shortage has the rates of the time that it covers.
        for (until, period) in [(60_000, "25s"), (60_000, "59s"), (35_000, "20s")] {
            let now = Clocks { since_boot: until, wall: CLOCKS.wall + until };
            let [db] = counts::all(&history, period, now, is_key).try_into().unwrap();
            let db = statistics(db, &BTreeMap::new());
            let found = [db.run_percent, db.throttled_percent.unwrap(), db.disk_read_bytes_per_s.unwrap()];
            assert_eq!(found.map(|rate| rate.round() as u64), [75, 20, 4096], "{period} until {until}");
        }
    }

    #[test]
    fn ids_of_vms_differ_and_a_copy_does_not_take_that_of_the_first_one() {
        const UUID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        let sampled = |key: &str, pid: u32, started: u64, uuid: &str| {
            let named = Named { key: key.to_owned(), name: "x".to_owned() };
            let machine = Machine { started, uuid: Some(uuid.into()), ..machine(pid, 1) };
            (Arc::new(machine), Arc::new(named))
        };
        let mut own = sampled("vm/own", 3, 900, UUID);
        Arc::get_mut(&mut own.1).unwrap().name = "own".to_owned();
        let machines = vec![
            own,
            sampled("machine/a", 7, 500, UUID),
            sampled("machine/c", 8, 600, UUID),
            sampled("machine/b", 9, 800, UUID),
        ];
        let sample = Sampled { machines, left_out: 0 };
        let all = sample.times();
        let ids: Vec<_> = all.iter().map(|vm| (vm.id.as_str(), vm.foreign)).collect();
        assert_eq!(ids, [("own", false), (UUID, true), ("pid:8", true), ("pid:9", true)]);
        assert_eq!(all[1].vcpus.len(), 2);
        assert!((0..9).all(|at| sample.name_of(at, &sample.machines[2].0).is_some()), "at any place");
        let found = |pid, started| sample.name_of(0, &sampled("", pid, started, UUID).0);
        assert_eq!(found(8, 600).map(|named| named.key.clone()).as_deref(), Some("machine/c"));
        assert_eq!((found(8, 601), found(6, 600)), (None, None), "another process");
        assert!(sample.has_names_of(&sample.clone()) && !sample.has_names_of(&Sampled::default()));
    }
}
