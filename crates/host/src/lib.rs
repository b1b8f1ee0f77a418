//! The Linux host: what it is made of, how busy it is, how it is set, what its kernel has counted, what is changed on it for
//! latency-sensitive VMs, and taking all of it back.
//!
//! Everything is read below a root path, so that captured trees of other machines can be read as well.

mod affinity;
pub mod captured;
pub mod check;
mod cpuset;
pub mod evidence;
pub mod exclusive;
mod fence;
mod folder;
pub mod groups;
mod halt_poll;
mod irq;
pub mod kernel;
pub mod ledger;
mod list;
mod mask;
pub mod migrate;
mod partition;
pub mod pci;
mod pm_qos;
pub mod precedence;
pub mod real_time;
mod scheduler;
pub mod topology;
pub mod utilisation;
mod workqueue;
