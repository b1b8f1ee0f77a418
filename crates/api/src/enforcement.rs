//! Enforcement by the Linux host: the plan's [`HostPlan`] and the resulting [`HostReport`].
//!
//! The plan states the whole wanted state of the host. Enforcement compares it with what it did
//! before, changes the difference, and reports. There is no undo request: a VM or setting that the
//! next plan omits is put back to what it was. An empty plan restores the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::passthrough::PciAddress;
use crate::placement::Numbers;
use crate::pnic::PnicSettings;
use crate::{Bytes, Name};

/// The wanted state of the host: one entry for each VM with a process, what concerns all VMs, and
/// network cards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPlan {
    /// Every VM that has a process, also one that wants nothing or is being stopped. A VM that is
    /// not here loses everything.
    pub vms: BTreeMap<Name, VmShare>,
    /// VMs that are being started and have no process yet. Like those with a process, they keep the
    /// PCI devices that were taken for them.
    pub starting: BTreeSet<Name>,
    /// Process of the fabric, if its threads get real-time priority.
    pub fabric: Option<u32>,
    /// Minimum time that KVM polls for a halted vCPU, in nanoseconds.
    pub poll_ns: Option<u64>,
    /// Settings of network cards, by the names of their interfaces. A card that is not here has its
    /// former settings.
    pub cards: BTreeMap<Name, PnicSettings>,
}

/// The share of the host that one VM's process gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmShare {
    /// Process number.
    pub pid: u32,
    /// The pCPUs of its vCPUs.
    pub cpus: CpuShare,
    /// The shares, limits and reservations of its control group; `None` sets none.
    pub group: Option<GroupSettings>,
    /// The limits of its process; `None` if none were recorded when it started.
    pub limits: Option<ProcessLimits>,
    /// NUMA nodes to which its memory is moved; empty leaves it where it is.
    pub memory: BTreeSet<u32>,
    /// Gives the VM's threads other than vCPUs real-time priority.
    pub priority: bool,
    /// pCPUs that serve the interrupts of the PCI devices taken for it; empty leaves them to the
    /// rule for all other interrupts.
    pub interrupts: BTreeSet<u32>,
}

/// The pCPUs of a VM's vCPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CpuShare {
    /// The vCPUs run on any pCPU that no other VM owns.
    #[default]
    Any,
    /// The vCPUs share these pCPUs with other threads.
    Bound(BTreeSet<u32>),
    /// Each vCPU owns a pCPU.
    Exclusive {
        /// The pCPU of each vCPU, in the order of the vCPUs.
        cpus: Vec<u32>,
        /// SMT siblings of these pCPUs that stay idle.
        idle: Vec<u32>,
    },
}

impl CpuShare {
    /// The pCPUs taken from all other tasks: those of the vCPUs, and SMT siblings
    /// that stay idle.
    pub fn exclusive(&self) -> impl Iterator<Item = u32> + '_ {
        let (cpus, idle): (&[u32], &[u32]) = match self {
            Self::Exclusive { cpus, idle } => (cpus, idle),
            Self::Any | Self::Bound(_) => (&[], &[]),
        };
        cpus.iter().chain(idle).copied()
    }
}

/// Settings of a VM's control group (row VN-14 of docs/spec.md).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// CPU weight beside other groups when pCPUs are short; an ordinary vCPU has 1000.
    pub cpu_shares: u64,
    /// Maximum CPU time, in thousandths of a pCPU.
    pub cpu_limit: Option<u64>,
    /// Guest memory that is never reclaimed.
    pub memory_min: Bytes,
    /// Guest memory that is reclaimed only after other groups are down to theirs.
    pub memory_low: Bytes,
    /// Guest memory above which the host swaps it out; `None` without a limit or without swap.
    pub memory_high: Option<Bytes>,
    /// Keeps all of the guest's memory out of swap.
    pub no_swap: bool,
    /// Disk weight beside other groups while a device is busy; an ordinary disk has 1000. `None`
    /// sets no weight: the VM has no disk, or no VM's disk shares differ from the default.
    pub disk_shares: Option<u64>,
}

/// Limits of a VM's process, so that one that is faulty or taken over harms only its own VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Memory that is not on huge pages: the guest's, and what the program needs besides.
    pub memory: Bytes,
    /// Guest memory on huge pages. It counts where the kernel charges huge pages to control groups.
    pub huge: Bytes,
    /// Processes and threads.
    pub processes: u64,
}

/// A limit of a VM's process that a control group keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    /// Memory.
    Memory,
    /// Swap space.
    Swap,
    /// Processes and threads.
    Processes,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory limit",
            Self::Swap => "swap limit",
            Self::Processes => "process limit",
        })
    }
}

/// The state of the host after a plan was settled.
///
/// A part whose changes could not be recorded in the ledger (see [`HostReport::unrecorded`]) keeps
/// what it reported before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostReport {
    /// VMs for which something is in force, in progress, or failed. This includes VMs without a
    /// process of which something is still to be put back.
    pub vms: BTreeMap<Name, VmReport>,
    /// PCI devices taken from the host, and the VM that has each.
    pub devices: BTreeMap<PciAddress, Name>,
    /// Network cards with settings, and those of which something is still to be put back: which
    /// settings are not in force or not put back, and why.
    pub cards: BTreeMap<Name, Vec<String>>,
    /// Why something for exclusive pCPUs or halt polling could not be done.
    pub cpu_problems: Vec<String>,
    /// Why PCI devices were not given back to the host yet.
    pub device_problems: Vec<String>,
    /// Why threads could not be given real-time priority, or could not be put back.
    pub priority_problems: Vec<String>,
    /// Interrupts that the hardware keeps on exclusive pCPUs.
    pub fixed_interrupts: Vec<FixedInterrupt>,
    /// Processes that lost their real-time priority in this step because a thread used too much.
    pub greedy: Vec<GreedyProcess>,
    /// Why the ledger could not be written; the changes that needed it were not made.
    pub unrecorded: Vec<Unrecorded>,
}

/// The state of one VM on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmReport {
    /// pCPUs that its vCPUs own, in the order of the vCPUs: in force, or begun.
    pub cpus: Vec<u32>,
    /// Every vCPU is bound to the pCPU that it owns, even if others may run there as well.
    pub bound: bool,
    /// Every vCPU is bound to the pCPU that it owns, and all other tasks are kept off. Interrupts
    /// and kernel work may still arrive; see [`HostReport::cpu_problems`] and
    /// [`HostReport::fixed_interrupts`].
    pub exclusive: bool,
    /// Why its vCPUs are not bound to the pCPUs that they were to share.
    pub unbound: Option<String>,
    /// Its process is in its control group, and the group's settings are made.
    pub grouped: bool,
    /// Why the control group could not be made or set.
    pub group_problem: Option<String>,
    /// Why the weight of its disk has no effect.
    pub weightless: Option<String>,
    /// The limits of its process that are not in force, and why.
    pub unlimited: BTreeMap<LimitKind, String>,
    /// The limits that processes of it have reached, by number. A process that has ended is there
    /// once more.
    pub hits: BTreeMap<u32, LimitHits>,
    /// The move of its memory to other nodes, under way or done.
    pub memory: Option<MemoryMove>,
}

/// The limits that a process has reached since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitHits {
    /// Memory: processes that the kernel ended for lack of it.
    pub memory: Option<LimitHit>,
    /// Processes and threads: those that the kernel refused to create.
    pub processes: Option<LimitHit>,
    /// Descriptors: those that are open, while nearly all are.
    pub descriptors: Option<LimitHit>,
}

/// A limit that a process has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitHit {
    /// Number of events, or of descriptors.
    pub count: u64,
    /// The limit.
    pub limit: u64,
}

/// Progress of moving a running VM's memory to other NUMA nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryMove {
    /// The destination: any of these nodes.
    pub nodes: BTreeSet<u32>,
    /// Memory moved there.
    pub moved: Bytes,
    /// Memory that the present pass has not examined yet.
    pub ahead: Bytes,
    /// Memory that the present pass could not move.
    pub left: Bytes,
    /// Why memory was left, or why none could be examined.
    pub why: Option<String>,
    /// Number of passes, including the present one.
    pub passes: u32,
    /// No further pass follows.
    pub done: bool,
}

impl MemoryMove {
    /// Returns what could not be moved after the last pass, and why; `None` if nothing was left.
    pub fn shortfall(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        let nodes = Numbers(self.nodes.clone());
        let what = match self.left.0 >> 12 {
            0 => format!("its memory could not be looked at, to be moved to node {nodes}"),
            pages => {
                let mib = self.left.0 as f64 / f64::from(1 << 20);
                format!("{pages} pages ({mib:.1} MiB) of its memory could not be moved to node {nodes}")
            }
        };
        Some(format!(
            "{what}, tried {} times: {why}; hint: its next start puts all of it there if there is room",
            self.passes
        ))
    }
}

/// An interrupt that stays on exclusive pCPUs because it cannot be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedInterrupt {
    /// Interrupt number.
    pub number: u32,
    /// Drivers that handle it.
    pub drivers: String,
    /// Exclusive pCPUs that may receive it.
    pub cpus: BTreeSet<u32>,
    /// Why it was not moved.
    pub why: String,
}

impl fmt::Display for FixedInterrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupt {} ({})", self.number, self.drivers)
    }
}

/// A process that loses its real-time priority for a while because one thread used too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreedyProcess {
    /// Process number.
    pub pid: u32,
    /// Time that the thread used, in percent of a pCPU.
    pub percent: u64,
    /// Maximum that a thread may use, in percent of a pCPU.
    pub allowed_percent: u64,
    /// Seconds without real-time priority.
    pub pause_s: u64,
}

/// A change that was not made because the ledger could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecorded {
    /// The part of the host that stays as it was, such as `exclusive pCPUs`.
    pub what: &'static str,
    /// The chain of causes, outermost first.
    pub causes: Vec<String>,
}

impl fmt::Display for Unrecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.causes.join(": "))
    }
}

/// The kernel's controllers of control groups that this host can use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Controllers {
    /// CPU time.
    pub cpu: Hierarchy,
    /// Memory.
    pub memory: Hierarchy,
    /// pCPUs and NUMA nodes.
    pub cpuset: Hierarchy,
    /// Disk I/O.
    pub disk: Hierarchy,
}

/// The cgroup version whose hierarchy has a controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hierarchy {
    /// The kernel has no such controller, or it cannot be used here.
    #[default]
    None,
    /// cgroup v1: a hierarchy for each controller.
    V1,
    /// cgroup v2: one hierarchy for all controllers.
    V2,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exclusive_pcpus_are_taken_from_others() {
        let exclusive = CpuShare::Exclusive { cpus: vec![4, 2], idle: vec![6] };
        assert_eq!(exclusive.exclusive().collect::<Vec<_>>(), [4, 2, 6]);
        assert_eq!(CpuShare::Bound([1].into()).exclusive().count(), 0);
        assert_eq!(CpuShare::Any.exclusive().count(), 0);
    }

    #[test]
    fn a_shortfall_names_pages_passes_and_cause() {
        let mut moved = MemoryMove { nodes: [1].into(), passes: 2, ..MemoryMove::default() };
        assert_eq!(moved.shortfall(), None);
        moved.left = Bytes::mib(1);
        moved.why = Some("it is full".to_owned());
        let told = moved.shortfall().unwrap();
        assert!(told.starts_with("256 pages (1.0 MiB) of its memory could not be moved to node 1, tried 2"));
        moved.left = Bytes(0);
        assert!(moved.shortfall().unwrap().starts_with("its memory could not be looked at"));
    }
}
