//! Dense mode: tests the load at intervals and stores the resulting state (DM-2 to DM-4, DM-6).
//!
//! After a kill the fabric continues with its configuration. Therefore the next daemon starts with
//! the stored state, and follows the load from its first test on, one interval later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use taut_api::Name;
use taut_api::event::Level;
use taut_api::host::HostSettings;
use taut_api::tune::{TuneMode, TuneReading, TuneState};
use taut_host::kernel::utilisation::{self, CpuTimes};
use taut_plan::Desired;
use taut_plan::network::dense;

use super::Reconciler;

/// Key of the state in the store.
pub(super) const SUBJECT: &str = "tune/host";

/// The host's counters at one time.
#[derive(Debug)]
struct Sample {
    at: Instant,
    /// The same time of the wall clock, in milliseconds since the Unix epoch.
    at_ms: u64,
    cpus: CpuTimes,
    /// CPU time of each process that does not count as load.
    excluded: BTreeMap<u32, u64>,
}

impl Sample {
    /// Reads the counters. The processes in `excluded` do not count as load.
    fn take(excluded: &BTreeSet<u32>) -> Self {
        let root = Path::new("/");
        let cpus = utilisation::read(root).unwrap_or_else(|error| {
            // The test then reports that the utilisation is unknown.
            tracing::warn!(%error, "the host's load is not known");
            CpuTimes::default()
        });
        Self { at: Instant::now(), at_ms: now_ms(), cpus, excluded: utilisation::processes(root, excluded) }
    }

    /// Returns the utilisation since an earlier sample. A process without an earlier value is new.
    fn percent_since(&self, earlier: &Self) -> Option<u32> {
        let ran = |(pid, now): (&u32, &u64)| now.saturating_sub(*earlier.excluded.get(pid).unwrap_or(&0));
        self.cpus.percent_since(&earlier.cpus, self.excluded.iter().map(ran).sum())
    }
}

/// The load's measurement for dense mode.
#[derive(Debug, Default)]
pub(super) struct DenseMode {
    /// Counters at the beginning of the present interval, while dense mode is configured.
    interval: Option<Sample>,
}

impl DenseMode {
    /// Returns the time until the next test, if there is one.
    pub(super) fn until_test(&self, settings: &HostSettings) -> Option<Duration> {
        // Stored settings are valid, so the default is never used.
        let interval = Duration::from_secs(settings.tune_interval().unwrap_or(60).into());
        self.interval.as_ref().map(|begin| interval.saturating_sub(begin.at.elapsed()))
    }
}

impl Reconciler {
    /// Tests the load when a test is due, and updates dense mode.
    pub(super) fn test_load(&mut self) {
        let state = self.store.state();
        let settings = &state.desired.host;
        let reading = match (settings.tune_mode, &self.dense.interval) {
            (TuneMode::Default, _) => {
                self.dense.interval = None;
                None
            }
            (TuneMode::Dense, None) => {
                self.dense.interval = Some(self.sample().0);
                None
            }
            (TuneMode::Dense, Some(_)) if self.dense.until_test(settings) == Some(Duration::ZERO) => {
                Some(self.end_interval(&state.desired))
            }
            (TuneMode::Dense, Some(_)) => None,
        };
        let before = {
            let mut seen = self.board.lock();
            seen.tune_interval_began_ms = self.dense.interval.as_ref().map(|begin| begin.at_ms);
            seen.observed.tune.clone()
        };
        let next = dense::update_dense_mode(settings, &before, now_ms(), reading);
        if next != before {
            self.note_tune(settings, &before, next);
        }
    }

    /// Samples the counters. VMs whose vCPUs keep their pCPUs while idle (`cpu-pm`) are excluded
    /// from the load; their names are returned.
    fn sample(&self) -> (Sample, Vec<Name>) {
        let processes = self.vms.seen().into_iter().filter_map(|(name, vm)| Some((name, vm.process?)));
        let excluded = processes.filter(|(_, process)| process.machine.cpu_pm);
        let (pids, names) = excluded.map(|(name, process)| (process.pid, name)).unzip();
        (Sample::take(&pids), names)
    }

    /// Ends the present interval, starts the next, and returns the load.
    fn end_interval(&mut self, desired: &Desired) -> TuneReading {
        let (sample, excluded) = self.sample();
        let utilisation = self.dense.interval.as_ref().and_then(|begin| sample.percent_since(begin));
        let (vms, vcpus) = {
            let observed = &self.board.lock().observed;
            dense::count_running(&desired.as_running(observed), observed)
        };
        let pcpus = sample.cpus.pcpus();
        self.dense.interval = Some(sample);
        TuneReading { pcpus, vms, vcpus, utilisation, excluded }
    }

    /// Stores the new state before any plan uses it.
    fn note_tune(&self, settings: &HostSettings, before: &TuneState, next: TuneState) {
        let remembered = match settings.tune_mode {
            TuneMode::Dense => self.store.remember(SUBJECT, &next),
            TuneMode::Default => self.store.forget(SUBJECT),
        };
        if let Err(error) = remembered {
            tracing::warn!(%error, "the state of dense mode could not be noted");
        }
        if next.on != before.on {
            let what = if next.on { "on" } else { "off" };
            let why = match &next.test {
                Some(test) => test.to_string(),
                None => "Net.NetTuneHostMode is default".to_owned(),
            };
            let message = format!("dense mode is {what}: {why}");
            self.store.event(Level::Info, "host", &format!("tune.{what}"), &message);
        }
        self.board.lock().observed.tune = next;
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_is_the_difference_of_two_samples() {
        let before = Sample::take(&BTreeSet::from([std::process::id()]));
        assert_eq!(before.excluded.len(), 1);
        assert!(before.cpus.pcpus() > 0);
        let Sample { at, at_ms, .. } = before;
        let mut after = Sample { at, at_ms, cpus: before.cpus.clone(), excluded: BTreeMap::new() };
        assert_eq!(after.percent_since(&before), None);
        // Waits until at least one counter has moved.
        while after.percent_since(&before).is_none() {
            after = Sample::take(&BTreeSet::new());
        }
        let percent = after.percent_since(&before).unwrap();
        assert!(percent <= 100, "{percent}");
        // An excluded process that ran longer than all CPUs leaves no load.
        after.excluded.insert(1, u64::MAX);
        assert_eq!(after.percent_since(&before), Some(0));
    }
}
