//! A machine that does nothing, for tests. It grants every question an answer, until a fault.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::{Command, Ended, Job, Machine, Signal, Text};
use crate::reason::{Measured, NotMeasured};

/// Answers that mean nothing. Each number is greater than the one before, so that counters count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant(Rc<Cell<u32>>);

impl Grant {
    pub(super) fn number(&self) -> f64 {
        self.0.set(self.0.get() + 1);
        f64::from(self.0.get())
    }

    pub(super) fn word(&self) -> String {
        self.number().to_string()
    }
}

/// A fault of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Programs end with status 1, after they have written a result.
    Fails,
    /// Programs end with status 1 and write nothing.
    FailsSilently,
    /// Programs end with status 0 and write nothing; files of an earlier run are there.
    LeavesAStaleFile,
    /// Programs write `null`.
    WritesNull,
    /// Programs write an object without fields.
    WritesNothingInside,
    /// Programs write NaN where a number belongs.
    WritesNaN,
}

impl Fault {
    pub(crate) const ALL: [Self; 6] = [
        Self::Fails,
        Self::FailsSilently,
        Self::LeavesAStaleFile,
        Self::WritesNull,
        Self::WritesNothingInside,
        Self::WritesNaN,
    ];

    fn answer(self, grant: &Grant) -> (i32, Text) {
        match self {
            Self::Fails => (1, Text::granted(grant.clone())),
            Self::FailsSilently => (1, Text::from("")),
            Self::LeavesAStaleFile => (0, Text::from("")),
            Self::WritesNull => (0, Text::from("null\n")),
            Self::WritesNothingInside => (0, Text::from("{}\n")),
            Self::WritesNaN => (0, Text::from("NaN\n")),
        }
    }
}

/// A machine that does nothing.
#[derive(Debug)]
pub(crate) struct StandIn {
    grant: Grant,
    fault: Fault,
    /// Number of the program from which on the fault is there.
    from: usize,
    /// True if only programs that are recorded, as benches are, have the fault.
    is_for_benches: bool,
    pub(crate) has_rivals: bool,
    /// Programs that had the fault.
    pub(crate) faults: usize,
    programs: usize,
    now: Duration,
}

impl StandIn {
    /// Makes a machine whose programs have a fault from number `from` on.
    pub(crate) fn new(fault: Fault, from: usize, is_for_benches: bool) -> Self {
        Self {
            grant: Grant::default(),
            fault,
            from,
            is_for_benches,
            has_rivals: true,
            faults: 0,
            programs: 0,
            now: Duration::ZERO,
        }
    }

    /// A machine on which nothing fails.
    pub(crate) fn healthy() -> Self {
        Self::new(Fault::FailsSilently, usize::MAX, false)
    }

    fn answer(&mut self, command: String, is_bench: bool) -> Ended {
        self.now += Duration::from_millis(100);
        let counts = is_bench || !self.is_for_benches;
        self.programs += usize::from(counts);
        let has_fault = counts && self.programs > self.from;
        let (status, stdout) = if has_fault {
            self.faults += 1;
            self.fault.answer(&self.grant)
        } else {
            (0, Text::granted(self.grant.clone()))
        };
        let stderr = if has_fault { Text::from("") } else { Text::granted(self.grant.clone()) };
        Ended { command, status: Some(status), stdout, stderr, took: Duration::from_millis(100) }
    }
}

impl Machine for StandIn {
    fn run(&mut self, command: &Command) -> Measured<Ended> {
        Ok(self.answer(command.to_string(), command.record.is_some()))
    }

    fn start(&mut self, _: &Command) -> Measured<Job> {
        Ok(Job { pid: 1 })
    }

    fn wait(&mut self, _: &Job, _: Duration) -> Measured<Ended> {
        Ok(self.answer("job".to_owned(), true))
    }

    fn is_running(&mut self, _: &Job) -> bool {
        true
    }

    fn output(&mut self, _: &Job) -> Measured<Text> {
        Ok(Text::granted(self.grant.clone()))
    }

    fn signal_session(&mut self, _: u32, _: Signal) -> Measured<()> {
        Ok(())
    }

    fn signal(&mut self, _: u32, _: Signal) -> Measured<()> {
        Ok(())
    }

    fn read(&mut self, _: &Path) -> Measured<Text> {
        Ok(Text::granted(self.grant.clone()))
    }

    fn write(&mut self, _: &Path, _: &str) -> Measured<()> {
        Ok(())
    }

    fn exists(&mut self, path: &Path) -> bool {
        // Cpusets of labs are gone, and have none below them.
        !path.to_string_lossy().starts_with("/sys/fs/cgroup/cpuset/taut-goal")
    }

    fn size(&mut self, _: &Path) -> Measured<u64> {
        Ok(1)
    }

    fn make_folder(&mut self, _: &Path) -> Measured<()> {
        Ok(())
    }

    fn remove(&mut self, _: &Path) -> Measured<()> {
        Ok(())
    }

    fn remove_all(&mut self, _: &Path) -> Measured<()> {
        Ok(())
    }

    fn list(&mut self, folder: &Path) -> Measured<Vec<PathBuf>> {
        Ok(vec![folder.join("1")])
    }

    fn copy(&mut self, _: &Path, _: &Path) -> Measured<()> {
        Ok(())
    }

    fn program(&mut self, name: &str) -> Option<PathBuf> {
        self.has_rivals.then(|| PathBuf::from(name))
    }

    fn variable(&mut self, _: &str) -> Option<String> {
        self.has_rivals.then(|| "/rivals".to_owned())
    }

    fn now(&mut self) -> Duration {
        self.now += Duration::from_millis(1);
        self.now
    }

    fn sleep(&mut self, time: Duration) -> Measured<()> {
        self.now += time;
        // A loop that waits for what never comes has to end.
        if self.now > Duration::from_secs(10_000_000) {
            Err(NotMeasured::because("it waits too long"))
        } else {
            Ok(())
        }
    }

    fn record_in(&mut self, _: &Path) -> Measured<()> {
        Ok(())
    }

    fn set_closing(&mut self, _: bool) -> bool {
        false
    }

    fn is_stand_in(&self) -> bool {
        true
    }

    fn takes_for_granted(&self) -> bool {
        self.faults == 0
    }
}
