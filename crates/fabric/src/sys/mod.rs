//! The host's services: event queues, timers, threads, locks, counters, kinds of descriptors,
//! inherited ones, rings of packet sockets and of XDP sockets, the watch over writes to descriptors
//! of others, and the sandbox.

pub(crate) mod affinity;
mod atomic;
pub mod carrier;
pub mod counters;
pub mod descriptor;
pub(crate) mod doze;
pub mod epoll;
pub mod event_fd;
pub mod inherited;
pub mod lock;
pub mod packet_ring;
pub mod sandbox;
pub(crate) mod thread;
pub mod timer;
pub mod watch;
pub mod xsk;
