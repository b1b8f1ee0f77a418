//! What is measured with: latencies, work for a CPU, and what the machine itself can do.

pub mod latencies;
pub mod raw;
pub mod spin;
