//! A program that computes.

use std::time::{Duration, Instant};

use taut_bench::measure::spin::Units;

use super::{Next, Task};
use crate::machine::Machine;

/// How long it computes between two looks at the network, as a kernel's time slice would be; interrupts end a real one's.
const SLICE: Duration = Duration::from_micros(100);

/// Counts what it does.
pub(crate) struct SpinTask(pub(crate) Units);

impl Task for SpinTask {
    fn poll(&mut self, _machine: &mut Machine, now: Instant) -> Next {
        while now.elapsed() < SLICE {
            self.0.work();
        }
        Next::Again
    }

    fn stop(&mut self, _machine: &mut Machine) {}
}
