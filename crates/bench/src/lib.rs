//! Load generators, the agent that runs them, percentiles, reports.
//!
//! A workload is described by a request of [`agent::protocol`], run by an [`agent::Backend`] (kernel sockets in
//! [`kernel`]; `taut-microguest` has one with a stack of its own), and answered with [`measure::latencies::Latencies`] or bytes. Workloads on streams, of
//! TCP or VMCI sockets, speak [`wire`], so that any backend can be the peer of any other.

pub mod agent;
pub mod front_end;
pub mod kernel;
pub mod load;
pub mod measure;
pub mod paced;
pub mod report;
pub mod restart;
pub mod wire;
