//! Probing: which servers answer, and how fast.

use std::time::{Duration, Instant};

use taut_bench::agent::protocol::{Probe, Probed, Target};

use super::{Next, Report, Task, buffer_size};
use crate::machine::{Connection, Machine};

/// Time after which a target counts as silent.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connects to one target after the other.
pub(crate) struct ProbeTask {
    wanted: Probe,
    report: Report<Vec<Probed>>,
    found: Vec<Probed>,
    /// Targets probed so far, in all rounds.
    asked: usize,
    /// The connection in progress, and its start.
    asking: Option<(Connection, Instant)>,
}

impl ProbeTask {
    /// Creates the task. `found` has an empty result for each target.
    pub(crate) fn new(wanted: Probe, found: Vec<Probed>, report: Report<Vec<Probed>>) -> Self {
        Self { wanted, report, found, asked: 0, asking: None }
    }

    fn ask(&mut self, machine: &mut Machine) -> Next {
        let count = self.wanted.targets.len();
        if self.asked == count * self.wanted.rounds as usize {
            return self.report.end(Ok(std::mem::take(&mut self.found)));
        }
        if self.asked == 0 {
            self.report.started();
        }
        let Target { to, port } = &self.wanted.targets[self.asked % count];
        match machine.connect(to, *port, buffer_size(Some(0))) {
            Ok(connection) => {
                self.asking = Some((connection, Instant::now()));
                Next::Again
            }
            Err(error) => self.report.end(Err(error)),
        }
    }
}

impl Task for ProbeTask {
    fn poll(&mut self, machine: &mut Machine, _: Instant) -> Next {
        let Some((connection, begun)) = self.asking else { return self.ask(machine) };
        let mut socket = machine.socket(connection);
        let (stands, open) = (socket.may_send(), socket.is_open());
        let took = begun.elapsed();
        if !stands && open && took < PATIENCE {
            return Next::At(begun + PATIENCE);
        }
        let at = self.asked % self.wanted.targets.len();
        let found = &mut self.found[at];
        if stands {
            found.connected += 1;
            machine.close(connection);
        } else {
            *(if open { &mut found.silent } else { &mut found.refused }) += 1;
            machine.abort(connection);
        }
        if stands || !open {
            found.took_ns.record(took);
        }
        (self.asking, self.asked) = (None, self.asked + 1);
        Next::Again
    }

    fn stop(&mut self, machine: &mut Machine) {
        if let Some((connection, _)) = self.asking.take() {
            machine.abort(connection);
        }
    }
}
