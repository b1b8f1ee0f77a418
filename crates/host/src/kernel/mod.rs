//! Files and calls of the Linux kernel, each in a file of its own.
//!
//! Other modules decide what VMs get, and remember what was changed.

pub(crate) mod adjust;
pub(crate) mod affinity;
pub mod bridge;
pub(crate) mod cached_file;
pub(crate) mod cards;
pub(crate) mod cgroup;
pub(crate) mod cpu_clock;
pub(crate) mod descriptors;
pub(crate) mod halt_poll;
pub(crate) mod irq;
pub(crate) mod list;
pub(crate) mod maps;
pub(crate) mod mask;
pub mod namespace;
pub mod netlink;
pub(crate) mod pages;
pub mod pci;
pub(crate) mod pm_qos;
pub mod real_time;
pub(crate) mod scheduler;
pub(crate) mod setting;
pub(crate) mod shortage;
pub(crate) mod task;
pub mod topology;
pub(crate) mod tree;
mod unshare;
pub mod utilisation;
pub(crate) mod workqueue;
pub mod xdp;
