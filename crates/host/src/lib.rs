//! The Linux host: reads its state, enforces the plan's shares for VMs, and puts everything back.
//!
//! The folders are layers, from the bottom up:
//!
//! * [`kernel`]: files and calls of the kernel, without knowledge of what taut does with them;
//! * [`ledger`]: the record of everything that taut changed, on disk before each change;
//! * [`enforce`]: one `settle(&HostPlan) -> HostReport` for pCPUs, groups, priority, memory,
//!   devices, network cards;
//! * [`observe`]: what the kernel counted for VMs' vCPUs, network cards, and captured hosts;
//! * [`check`]: the settings that `taut check` judges, changes, and restores.
//!
//! Every file is read below a root path, so that a captured tree of another host can be read, too.

pub mod check;
pub mod enforce;
pub mod kernel;
pub mod ledger;
pub mod observe;
