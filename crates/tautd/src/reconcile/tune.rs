//! Dense mode: the load is tested by interval, and what came of it is remembered (DM-2 to DM-4, DM-6).
//!
//! What is remembered is the host's state as any other: a daemon that was killed left a fabric that goes on as it was
//! configured, so the next one begins with the same, and agrees with the load at its first test, one interval later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use taut_api::Name;
use taut_api::event::Level;
use taut_api::host::HostSettings;
use taut_api::tune::{TuneMode, TuneReading, TuneState};
use taut_host::utilisation::{self, CpuTimes};
use taut_plan::Desired;
use taut_plan::network::dense;

use super::Reconciler;

/// What the store remembers it as.
pub(super) const SUBJECT: &str = "tune/host";

/// The host's counters at the beginning of an interval.
#[derive(Debug)]
pub(super) struct Look {
    at: Instant,
    cpus: CpuTimes,
    /// CPU time of each process that does not count.
    excluded: BTreeMap<u32, u64>,
}

impl Look {
    /// The counters now; these processes do not count.
    fn take(excluded: &BTreeSet<u32>) -> Self {
        let root = Path::new("/");
        let cpus = utilisation::read(root).unwrap_or_else(|error| {
            // The test then finds that nothing is known, and says so.
            tracing::warn!(%error, "the host's load is not known");
            CpuTimes::default()
        });
        Self { at: Instant::now(), cpus, excluded: utilisation::processes(root, excluded) }
    }

    /// What ran since an earlier look; a process that was not there then began in between.
    fn percent_since(&self, earlier: &Self) -> Option<u32> {
        let ran = |(pid, now): (&u32, &u64)| now.saturating_sub(*earlier.excluded.get(pid).unwrap_or(&0));
        self.cpus.percent_since(&earlier.cpus, self.excluded.iter().map(ran).sum())
    }
}

impl Reconciler {
    /// Tests the load when that is due.
    pub(super) fn tune(&mut self) {
        let state = self.store.state();
        let settings = &state.desired.host;
        let reading = match (settings.tune_mode, &self.tune_look) {
            (TuneMode::Default, _) => {
                self.tune_look = None;
                None
            }
            (TuneMode::Dense, None) => {
                self.tune_look = Some(self.look().0);
                None
            }
            (TuneMode::Dense, Some(_)) if self.until_test(settings) == Some(Duration::ZERO) => {
                Some(self.reading(&state.desired))
            }
            (TuneMode::Dense, Some(_)) => None,
        };
        let before = self.board.lock().observed.tune.clone();
        let next = dense::update_dense_mode(settings, &before, now_ms(), reading);
        if next != before {
            self.note_tune(settings, &before, next);
        }
    }

    /// Time until the next test, if there is to be one.
    pub(super) fn until_test(&self, settings: &HostSettings) -> Option<Duration> {
        // Settings are checked when they are written.
        let interval = Duration::from_secs(settings.tune_interval().unwrap_or(60).into());
        self.tune_look.as_ref().map(|look| interval.saturating_sub(look.at.elapsed()))
    }

    /// The counters now, and the VMs that do not count: they keep their pCPUs when they are idle.
    fn look(&self) -> (Look, Vec<Name>) {
        let processes = self.vms.seen().into_iter().filter_map(|(name, vm)| Some((name, vm.process?)));
        let keepers = processes
            .filter(|(_, process)| process.machine.cpu_pm)
            .map(|(name, process)| (process.pid, name));
        let (pids, names) = keepers.unzip();
        (Look::take(&pids), names)
    }

    /// The load since the last look, which ends here.
    fn reading(&mut self, desired: &Desired) -> TuneReading {
        let (look, excluded) = self.look();
        let utilisation = self.tune_look.as_ref().and_then(|earlier| look.percent_since(earlier));
        let (vms, vcpus) = dense::count_running(desired, &self.board.lock().observed);
        let pcpus = look.cpus.pcpus();
        self.tune_look = Some(look);
        TuneReading { pcpus, vms, vcpus, utilisation, excluded }
    }

    /// Before anything follows from it, it is remembered.
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
            self.store.event(
                Level::Info,
                "host",
                &format!("tune.{what}"),
                &format!("dense mode is {what}: {why}"),
            );
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
    fn a_reading_has_two_looks() {
        let before = Look::take(&BTreeSet::from([std::process::id()]));
        assert_eq!(before.excluded.len(), 1);
        assert!(before.cpus.pcpus() > 0);
        let mut after = Look { at: before.at, cpus: before.cpus.clone(), excluded: BTreeMap::new() };
        assert_eq!(after.percent_since(&before), None);
        // Some time later: at least one counter has moved.
        while after.percent_since(&before).is_none() {
            after = Look::take(&BTreeSet::new());
        }
        let percent = after.percent_since(&before).unwrap();
        assert!(percent <= 100, "{percent}");
        // A process that ran for longer than all CPUs: nothing is left.
        after.excluded.insert(1, u64::MAX);
        assert_eq!(after.percent_since(&before), Some(0));
    }
}
