//! Utilisation of the pCPUs between two readings of `/proc/stat` (DM-2).
//!
//! Counters are in ticks of 10 ms. They stand still in some sandboxes, single ones (`iowait`) run
//! backwards on any Linux, and CPUs come and go. Only pCPUs of both readings count, and a counter
//! that ran backwards counts as unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why the counters could not be read.
#[derive(Debug, thiserror::Error)]
pub enum UtilisationError {
    /// The file is missing or unreadable.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file names no CPU.
    #[error("{} names no CPU", path.display())]
    NoCpu {
        /// The file.
        path: PathBuf,
    },
}

/// Time of a CPU since it started, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// `user`, `nice`, `system`, `irq`, `softirq`. Guests' time is in the first two. `steal` is not
    /// included, since nothing of this host ran then.
    pub(crate) busy: u64,
    /// `idle` and `iowait`.
    pub(crate) idle: u64,
    /// `steal`.
    pub(crate) steal: u64,
}

/// A reading of all on-line pCPUs' counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuTimes(BTreeMap<u32, Ticks>);

/// Reads the counters of the host whose file system starts at `root` (`/`, or a captured tree).
///
/// # Errors
/// Returns an error if `/proc/stat` is missing or names no CPU.
pub fn read(root: &Path) -> Result<CpuTimes, UtilisationError> {
    let path = root.join("proc/stat");
    match fs::read_to_string(&path) {
        Ok(text) => parse(&text).ok_or(UtilisationError::NoCpu { path }),
        Err(source) => Err(UtilisationError::Read { path, source }),
    }
}

fn parse(text: &str) -> Option<CpuTimes> {
    let cpus: BTreeMap<_, _> = text.lines().filter_map(cpu).collect();
    (!cpus.is_empty()).then_some(CpuTimes(cpus))
}

/// Parses `cpu3 user nice system idle iowait irq softirq steal …`. Older kernels have fewer
/// columns.
fn cpu(line: &str) -> Option<(u32, Ticks)> {
    let mut words = line.strip_prefix("cpu")?.split(' ');
    let number = words.next()?.parse().ok()?;
    let columns: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let sum = |indices: &[usize]| {
        indices.iter().fold(0_u64, |sum, &index| sum.saturating_add(columns.get(index).copied().unwrap_or(0)))
    };
    Some((number, Ticks { busy: sum(&[0, 1, 2, 5, 6]), idle: sum(&[3, 4]), steal: sum(&[7]) }))
}

impl CpuTimes {
    /// Returns the number of on-line pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.0.len() as u32
    }

    /// Returns the busy share of all pCPUs' time since `earlier` in percent, rounded down.
    /// `excluded` ticks are subtracted from the busy time. Returns `None` if the counters stood
    /// still.
    pub fn percent_since(&self, earlier: &Self, excluded: u64) -> Option<u32> {
        let (busy, all) = self.ticks_since(earlier);
        let busy = u128::from(busy.saturating_sub(excluded));
        (all > 0).then(|| (100 * busy / u128::from(all)) as u32)
    }

    /// Returns the busy time since `earlier` in percent of one pCPU's time, not rounded.
    pub fn percent_of_one_since(&self, earlier: &Self) -> Option<f64> {
        let (busy, all) = self.ticks_since(earlier);
        (all > 0).then(|| 100.0 * f64::from(self.pcpus()) * busy as f64 / all as f64)
    }

    /// Returns the time that all pCPUs of both readings have spent since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Ticks {
        let both = self.0.iter().filter_map(|(number, now)| Some((now, earlier.0.get(number)?)));
        both.fold(Ticks::default(), |sum, (now, before)| Ticks {
            busy: sum.busy.saturating_add(now.busy.saturating_sub(before.busy)),
            idle: sum.idle.saturating_add(now.idle.saturating_sub(before.idle)),
            steal: sum.steal.saturating_add(now.steal.saturating_sub(before.steal)),
        })
    }

    /// Returns the busy time of each pCPU since `earlier`, in percent. A pCPU whose counters stood
    /// still is missing.
    pub fn percent_of_each_since(&self, earlier: &Self) -> BTreeMap<u32, f64> {
        let of = |(number, now): (&u32, &Ticks)| {
            let one = |ticks: Ticks| Self(BTreeMap::from([(*number, ticks)]));
            let percent = one(*now).percent_of_one_since(&one(*earlier.0.get(number)?))?;
            Some((*number, percent))
        };
        self.0.iter().filter_map(of).collect()
    }

    /// Returns the busy ticks and all ticks since `earlier`, of the pCPUs in both readings.
    fn ticks_since(&self, earlier: &Self) -> (u64, u64) {
        let Ticks { busy, idle, steal } = self.since(earlier);
        (busy, busy.saturating_add(idle).saturating_add(steal))
    }
}

/// Returns the CPU time of each process with all its threads, in ticks. Ended processes are left
/// out.
pub fn processes(root: &Path, pids: &BTreeSet<u32>) -> BTreeMap<u32, u64> {
    let time = |pid: u32| process(&fs::read_to_string(root.join(format!("proc/{pid}/stat"))).ok()?);
    pids.iter().filter_map(|&pid| Some((pid, time(pid)?))).collect()
}

/// Parses `pid (name) state …`. User and system time are fields 14 and 15; the name may hold any
/// byte.
fn process(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut times = rest.split(' ').skip(11);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
cpu  1131078 812677 477854 916670 4075 0 4609 35185 84 0
cpu0 578935 394065 254520 441147 2419 0 1814 17983 44 0
cpu1 552143 418611 223334 475523 1656 0 2794 17201 40 0
intr 158474711 0 9 0 0 0
ctxt 417046383
btime 1795261157
";

    fn times(lines: &[&str]) -> CpuTimes {
        parse(&lines.join("\n")).unwrap()
    }

    #[test]
    fn busy_time_excludes_idle_waiting_and_stolen_time() {
        let before = parse(BEFORE).unwrap();
        assert_eq!(before.pcpus(), 2);
        // CPU 0: 60 of 100 ticks in all busy columns. CPU 1: 20 idle, 20 waiting, 20 stolen, 40
        // guest.
        let after = times(&[
            "cpu0 578945 394075 254530 441187 2419 20 1824 17983 44 0",
            "cpu1 552183 418611 223334 475543 1676 0 2794 17221 80 0",
        ]);
        assert_eq!(after.percent_since(&before, 0), Some(50));
        assert_eq!(after.percent_since(&before, 50), Some(25));
        assert_eq!(after.percent_since(&before, 1), Some(49));
        assert_eq!(after.percent_since(&before, 1000), Some(0));
        assert_eq!(after.percent_of_one_since(&before), Some(100.0), "half of two");
        assert_eq!(before.percent_of_one_since(&before), None);
        assert_eq!(after.percent_of_each_since(&before), BTreeMap::from([(0, 60.0), (1, 40.0)]));
    }

    #[test]
    fn cpus_of_only_one_reading_do_not_count() {
        let before = times(&["cpu0 0 0 0 100", "cpu1 0 0 0 100", "cpu3 9000 0 0 100"]);
        let after = times(&["cpu0 10 0 0 190", "cpu2 5000 0 0 0", "cpu3 9100 0 0 100"]);
        assert_eq!(after.pcpus(), 3);
        assert_eq!(after.percent_since(&before, 0), Some(55));
        assert_eq!(times(&["cpu4 5 0 0 5"]).percent_since(&before, 0), None);
    }

    #[test]
    fn counters_that_stand_still_give_no_utilisation_and_backwards_counts_as_still() {
        let before = parse(BEFORE).unwrap();
        assert_eq!(before.percent_since(&before, 0), None);
        assert_eq!(times(&["cpu0 0 0 0 0"]).percent_since(&before, 0), None);
        let after = times(&["cpu0 578955 394065 254520 441127 2300 0 1814 17983 44 0"]);
        assert_eq!(after.percent_since(&before, 0), Some(100));
    }

    #[test]
    fn a_processs_time_is_read_for_a_name_with_parentheses() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc/77");
        fs::create_dir_all(&proc).unwrap();
        let stat = "77 (a) S (b) R 1 77 77 0 -1 4194560 1 2 3 4 150 27 9 9 20 0 4 0 1 2 3";
        fs::write(proc.join("stat"), stat).unwrap();
        assert_eq!(processes(root.path(), &BTreeSet::from([77, 78])), BTreeMap::from([(77, 177)]));
    }

    #[test]
    fn an_error_names_the_file() {
        let root = tempfile::tempdir().unwrap();
        let missing = read(root.path()).unwrap_err().to_string();
        assert!(missing.ends_with("proc/stat"), "{missing}");
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/stat"), "ctxt 1\n").unwrap();
        let empty = read(root.path()).unwrap_err().to_string();
        assert!(empty.ends_with("proc/stat names no CPU"), "{empty}");
        fs::write(root.path().join("proc/stat"), BEFORE).unwrap();
        assert_eq!(read(root.path()).unwrap(), parse(BEFORE).unwrap());
    }
}
