//! The pCPUs of vCPUs and of the fabric's threads, and the NUMA nodes of memory.
//!
//! [`exclusive`] states the problem for latency-sensitive VMs and [`solve`] solves it; [`affinity`]
//! binds the vCPUs of the other VMs. [`numa`] chooses the nodes of a VM's memory, and [`workers`]
//! puts the fabric's threads near the VMs that wait for them.

pub mod affinity;
mod cores;
pub mod exclusive;
mod free_cores;
pub mod numa;
pub mod problem;
pub mod shortage;
pub mod solve;
pub mod workers;
