//! Distance between the CPUs that rows measure on. On virtual machines it changes by itself.

use super::Lab;
use crate::machine::Command;
use crate::reason::Measured;

impl Lab<'_> {
    /// Measures the median round trip of a cache line between CPU 0 and CPU 1, in ns. Nothing else
    /// should be busy there. [`State`](crate::rounds::State) says what the figure means.
    pub fn cpu_round_trip(&mut self) -> Measured<f64> {
        let command =
            Command::new(self.setup.programs.join("taut")).args("-o json bench placement 0 1 --duration 0.1");
        self.run(&command.record("placement"))?.json()?.number("median")
    }
}
