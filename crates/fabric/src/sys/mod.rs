//! The host's services: event queues, threads, locks, counters, inherited descriptors and the
//! sandbox.

mod affinity;
pub mod counters;
pub mod epoll;
pub mod inherited;
pub mod lock;
pub mod sandbox;
pub(crate) mod thread;
