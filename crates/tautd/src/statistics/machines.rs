//! VMs of this host, also those that other programs have started: times of their vCPUs and of their
//! other threads.

use std::collections::BTreeMap;

use taut_api::statistics::{Column, Period, VcpuStatistics, VmStatistics};
use taut_history::{Clocks, Counted, FileError, History, Point, Values};
use taut_host::observe::machines::{Machine, Times};
use taut_plan::facts::Process;

use crate::board::Seen;

/// Begins of the keys of taut's VMs and of others; a name or UUID follows.
const OWN: &str = "vm/";
const FOREIGN: &str = "machine/";
/// Most vCPUs of a machine that are sampled. Each takes two numbers of counters.
const MOST_VCPUS: u32 = 120;
/// Numbers of the counters of other threads.
const OTHERS: u8 = 250;
/// Number of times that a machine is seen before it counts as foreign: the daemon learns of the
/// processes of its own VMs a bit later.
const LOOKS_BEFORE_FOREIGN: u32 = 5;

/// Key and name of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) key: String,
    pub(super) name: String,
}

impl Named {
    /// Names a machine: as taut does if it is one of taut's, or else by its command line, and by
    /// the start of its process, because several machines may have one name. Returns nothing for a
    /// machine that may still turn out to be taut's.
    pub(super) fn of(machine: &Machine, seen: &Seen) -> Option<Self> {
        let mut own = seen.observed.vms.iter();
        let is_its = |process: &Process| process.pid == machine.pid;
        if let Some((name, _)) = own.find(|(_, vm)| vm.process.as_ref().is_some_and(is_its)) {
            return Some(Self { key: format!("{OWN}{name}"), name: name.to_string() });
        }
        let name = machine.name.clone().unwrap_or_else(|| format!("process {}", machine.pid));
        let id = machine.uuid.clone().unwrap_or_else(|| name.clone());
        (machine.looks >= LOOKS_BEFORE_FOREIGN)
            .then(|| Self { key: format!("{FOREIGN}{id}/{}", machine.started), name })
    }
}

/// Returns a machine's times as the history has them.
pub(super) fn reading(machine: &Machine) -> Values {
    let mut values = Values::default();
    let mut put = |number: u8, times: Times| {
        values.set(number, times.ran_ns);
        values.set(number + 1, times.waited_ns);
    };
    for (&vcpu, &times) in machine.vcpus.range(..MOST_VCPUS) {
        put(2 * vcpu as u8, times);
    }
    put(OTHERS, machine.others);
    values
}

/// Returns whether this is the key of a machine.
pub(super) fn is_key(key: &str) -> bool {
    key.starts_with(OWN) || key.starts_with(FOREIGN)
}

/// Meaning of [`values`].
pub(super) const COLUMNS: [Column; 3] = [Column::RunPercent, Column::ReadyPercent, Column::OthersPercent];

/// Returns the values of a point in a machine's series.
pub(super) fn values(point: &Point) -> Vec<Option<f64>> {
    let percent = |number| percent(&point.values, point.ms, number);
    let of_vcpus = |first: u8| (first..2 * MOST_VCPUS as u8).step_by(2).map(percent).sum::<f64>();
    [of_vcpus(0), of_vcpus(1), percent(OTHERS)].map(Some).to_vec()
}

/// Returns the times of all machines with samples in the period before now. `running` are the
/// processes of those that run, by key.
pub(super) fn statistics(
    history: &History,
    running: &BTreeMap<String, u32>,
    period: Period,
    now: Clocks,
) -> Result<Vec<VmStatistics>, FileError> {
    let end = history.timeline().position(now.since_boot);
    let begin = end.saturating_sub(period.ms());
    let mut all = Vec::new();
    for (key, name) in history.subjects_since(begin) {
        if !is_key(key) {
            continue;
        }
        let foreign = key.starts_with(FOREIGN);
        let Some(counted) = history.counted(key, begin, end)? else { continue };
        let to_ms = history.timeline().wall(counted.to, now);
        let vcpus = vcpus(&counted);
        all.push(VmStatistics {
            name: name.to_owned(),
            foreign,
            pid: running.get(key).copied(),
            covered_ms: counted.ms(),
            to_ms,
            run_percent: vcpus.iter().map(|vcpu| vcpu.run_percent).sum(),
            ready_percent: vcpus.iter().map(|vcpu| vcpu.ready_percent).sum(),
            vcpus,
            others_percent: percent(&counted.values, counted.ms(), OTHERS),
        });
    }
    Ok(all)
}

/// Returns nanoseconds of a counter in percent of the time in which it has grown.
fn percent(growth: &Values, ms: u64, number: u8) -> f64 {
    growth.per_second(number, ms) / 1e7
}

/// Returns the times of each vCPU that has ever run, and of those before it.
fn vcpus(counted: &Counted) -> Vec<VcpuStatistics> {
    let last = counted.totals.iter().map(|(number, _)| number).filter(|number| *number < OTHERS).max();
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

    use super::*;

    const CLOCKS: Clocks = Clocks { since_boot: 0, wall: 1_700_000_000_000 };

    fn machine(pid: u32, second: u64) -> Machine {
        let times = |run: u64, wait: u64| Times {
            ran_ns: run * 10_000_000 * second,
            waited_ns: wait * 10_000_000 * second,
        };
        Machine {
            pid,
            started: 99,
            looks: LOOKS_BEFORE_FOREIGN,
            name: Some("db".to_owned()),
            uuid: Some("6ba7".to_owned()),
            vcpus: [(0, times(50, 50)), (1, times(25, 0)), (MOST_VCPUS, times(10, 0))].into(),
            others: times(5, 1),
        }
    }

    #[test]
    fn times_are_percents_of_the_period() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        let mut history = History::open(&path, USUAL, "a", CLOCKS).unwrap();
        let named = Named::of(&machine(7, 0), &Seen::default()).unwrap();
        assert_eq!((named.key.as_str(), named.name.as_str()), ("machine/6ba7/99", "db"));
        for second in 1..=60 {
            history.record(1000 * second, &named.key, &named.name, &reading(&machine(7, second)));
        }
        let now = Clocks { since_boot: 60_000, wall: CLOCKS.wall + 60_000 };
        let running = BTreeMap::from([(named.key.clone(), 7)]);
        let all = statistics(&history, &running, "30s".parse().unwrap(), now).unwrap();
        let [db] = all.try_into().unwrap();
        assert_eq!((db.name.as_str(), db.foreign, db.pid), ("db", true, Some(7)));
        assert_eq!((db.covered_ms, db.to_ms), (30_000, CLOCKS.wall + 60_000));
        let close = |percent: f64, expected: f64| (percent - expected).abs() < 1e-6;
        assert!(
            close(db.run_percent, 75.0) && close(db.ready_percent, 50.0) && close(db.others_percent, 5.0)
        );
        let each: Vec<_> = db.vcpus.iter().map(|vcpu| (vcpu.vcpu, vcpu.run_percent.round())).collect();
        assert_eq!(each, [(0, 50.0), (1, 25.0)], "others are not sampled");
        let position = history.timeline().position(60_000);
        let series = history.series(&named.key, position - 30_000, position, 300).unwrap();
        assert_eq!(series.points.len(), 30);
        let rounded = |point| values(point).into_iter().map(|value| value.unwrap().round());
        assert!(series.points.iter().all(|point| rounded(point).eq([75.0, 50.0, 5.0])));
        let nameless = Machine { name: None, uuid: None, ..machine(9, 0) };
        assert_eq!(Named::of(&nameless, &Seen::default()).unwrap().name, "process 9");
        let young = Machine { looks: LOOKS_BEFORE_FOREIGN - 1, ..machine(9, 0) };
        assert_eq!(Named::of(&young, &Seen::default()), None, "it may be taut's");
    }
}
