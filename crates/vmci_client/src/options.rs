//! How a connection is attached, and how its calls wait.

use std::path::PathBuf;
use std::time::Duration;

/// Options of [`Attached::attach`](crate::Attached::attach).
#[derive(Debug, Clone)]
pub struct Options {
    /// The device with the memory. Without one, the devices `/dev/dax*` are searched for the memory
    /// of queue pairs.
    pub device: Option<PathBuf>,
    /// Longest time that a call looks at the rings before it sleeps. Zero: it sleeps at once. A
    /// call looks for less time if looking has not paid recently, or if others want the CPU.
    pub poll: Duration,
    /// Longest time that attaching may take.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { device: None, poll: Duration::from_micros(50), patience: Duration::from_secs(5) }
    }
}
