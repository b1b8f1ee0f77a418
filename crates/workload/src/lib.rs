//! Load generators, the agent that runs them, microguests, percentiles, reports.
//!
//! A workload is described by a request of [`agent::protocol`], run by an [`agent::Backend`] (kernel sockets in
//! [`kernel`], or a microguest's own stack), and answered with [`latencies::Latencies`] or bytes. Workloads on streams, of
//! TCP or VMCI sockets, speak [`wire`], so that any backend can be the peer of any other.

pub mod agent;
pub mod front_end;
pub mod kernel;
pub mod latencies;
pub mod load;
pub mod micro;
pub mod paced;
mod pattern;
pub mod raw;
pub mod report;
pub mod restart;
mod spin;
pub mod wire;
