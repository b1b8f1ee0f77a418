//! Basic measurements: latencies, CPU work, and what the machine itself can do.

pub mod latencies;
pub mod raw;
pub mod spin;
