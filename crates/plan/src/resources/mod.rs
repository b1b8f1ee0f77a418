//! The share of the host that each running VM gets, and the VMs that run.
//!
//! [`Decided`] collects what is decided for all VMs together. [`host_plan`] makes of it the wanted
//! state of the host. [`shares`] and [`memory_shares`] divide CPU, memory and disks; [`migration`]
//! moves memory after its VM; [`process_limits`] bounds what a process may use; [`processes`]
//! starts and stops VMs. [`added_queue_pairs`] adds memory to running VMs, and [`next_start`]
//! explains what a running VM gets when it is started again.

pub mod accelerator;
pub mod added_queue_pairs;
mod decided;
pub mod disk_limits;
pub mod halt;
pub mod host_plan;
pub mod memory;
pub mod memory_shares;
pub mod migration;
pub mod next_start;
pub mod passthrough;
pub mod process_limits;
pub mod processes;
pub mod shares;

pub use decided::Decided;
