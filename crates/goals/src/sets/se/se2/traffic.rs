//! Numbered echoes between two microguests, at a steady pace.

use std::time::Duration;

use crate::lab::Lab;
use crate::machine::Job;
use crate::reason::{Measured, require};

/// Time from one echo to the next in ms.
const PACE: u32 = 2;

/// Echoes under way.
pub(super) struct Traffic {
    job: Job,
    seconds: u32,
}

/// What became of the echoes.
pub(super) struct Pings {
    /// Echoes that were answered.
    pub(super) answered: f64,
    /// Echoes that were sent and not answered.
    pub(super) lost: f64,
    /// Echoes that were due and not sent.
    pub(super) unsent: f64,
}

impl Traffic {
    /// Begins to send echoes from m1 to m2 for so many seconds.
    pub(super) fn start(lab: &mut Lab, seconds: u32) -> Measured<Self> {
        let words = format!("ping m1 m2 --interval {PACE} --duration {seconds}");
        let command = lab.bench_command(words);
        Ok(Self { job: lab.start(&command)?, seconds })
    }

    /// Waits for the end, and counts.
    pub(super) fn end(self, lab: &mut Lab) -> Measured<Pings> {
        let limit = Duration::from_secs(u64::from(self.seconds) + 60);
        let report = lab.wait(&self.job, limit)?.json()?;
        let (answered, lost) = (report.sum("a.repeats", "count")?, report.sum("a.repeats", "lost")?);
        let due = f64::from(self.seconds * 1000 / PACE);
        let is_granted = lab.machine().takes_for_granted();
        require(answered + lost <= due || is_granted, "more echoes were counted than were due")?;
        let unsent = if is_granted { 0.0 } else { due - answered - lost };
        Ok(Pings { answered, lost, unsent })
    }
}
