//! Load generators, the agent that runs them, latencies, reports.
//!
//! A request of [`agent::protocol`] describes a measurement. An [`agent::Backend`] runs it:
//! [`kernel`] on the sockets of a Linux kernel, `taut-microguest` on a stack of its own. The answer
//! is a number of bytes or [`measure::latencies::Latencies`]. Stream sockets, TCP or vsock, speak
//! [`wire`], so that any back end can be the peer of any other.
//!
//! [`load`], [`paced`] and [`restart`] generate frames for vhost-user switches, without an agent.
//! [`report`] turns results into tables, JSON and pictures.

pub mod agent;
pub mod front_end;
pub mod kernel;
pub mod load;
pub mod measure;
pub mod paced;
pub mod report;
pub mod restart;
pub mod wire;
