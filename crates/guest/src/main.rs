//! The binary for inside a VM: workload end points, agent.
fn main() {}
