//! The host's services: event queues, locks, CPU affinity, counters, inherited descriptors and the sandbox.

pub mod affinity;
pub mod counters;
pub mod epoll;
pub mod inherited;
pub mod lock;
pub mod sandbox;
