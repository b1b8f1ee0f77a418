//! Report of a run: the lines, their counts, and the same as JSON.

use std::fmt;

use serde::Serialize;

use crate::figure::Verdict;
use crate::machine::{Command, Machine};
use crate::row::Outcome;

/// Report of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Set, such as `SK`.
    pub set: String,
    /// Time at which it began, UTC.
    pub time: String,
    /// True if rows shortened themselves.
    pub quick: bool,
    /// Commit of the checkout, with `-dirty` if files were changed since.
    pub commit: String,
    /// The machine: kernel, processor, number of pCPUs.
    pub machine: String,
    /// Outcomes of the goals, in order.
    pub goals: Vec<Outcome>,
    /// Number of goals that were met.
    pub met: usize,
    /// Number of goals that were missed.
    pub missed: usize,
    /// Number of goals that were not measured.
    pub not_measured: usize,
}

impl Report {
    /// Makes the report of outcomes.
    pub fn new(
        machine: &mut dyn Machine,
        checkout: &std::path::Path,
        set: &str,
        time: &str,
        goals: Vec<Outcome>,
    ) -> Self {
        let mut say = |command: Command| {
            let ended =
                machine.run(&command.folder(checkout)).ok().filter(super::super::machine::Ended::is_success);
            ended.map_or_else(|| "unknown".to_owned(), |ended| ended.stdout.trimmed().to_owned())
        };
        let commit = say(Command::new("git").args("describe --always --dirty"));
        let kernel = say(Command::new("uname").args("-sr"));
        let cpuinfo = machine.read(std::path::Path::new("/proc/cpuinfo")).ok();
        let model = cpuinfo.and_then(|text| text.between("model name\t: ", "").ok()).unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let count = |wanted: fn(&Verdict) -> bool| goals.iter().filter(|goal| wanted(&goal.verdict)).count();
        Self {
            set: set.to_owned(),
            time: time.to_owned(),
            quick: goals.iter().any(|goal| goal.quick),
            commit,
            machine: format!("{kernel}, {cpus} × {model}"),
            met: count(|verdict| *verdict == Verdict::Met),
            missed: count(|verdict| *verdict == Verdict::Missed),
            not_measured: count(|verdict| matches!(verdict, Verdict::NotMeasured(_))),
            goals,
        }
    }

    /// Returns true if every goal was measured, met or not.
    pub fn is_complete(&self) -> bool {
        self.not_measured == 0 && !self.goals.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for goal in &self.goals {
            writeln!(f, "{goal}")?;
        }
        let quick = if self.quick { ", quick" } else { "" };
        write!(
            f,
            "{} goals of {} at {} ({}{quick}): {} met, {} missed, {} not measured",
            self.goals.len(),
            self.set,
            self.commit,
            self.machine,
            self.met,
            self.missed,
            self.not_measured
        )
    }
}
