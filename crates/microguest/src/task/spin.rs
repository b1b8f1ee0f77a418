//! A program that computes.

use std::time::{Duration, Instant};

use taut_bench::measure::spin::Units;

use super::{Next, Task};
use crate::machine::Machine;

/// Time that it computes between two polls of the network, like a time slice of a kernel without
/// interrupts.
const SLICE: Duration = Duration::from_micros(100);

/// Counts the work that it does.
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
