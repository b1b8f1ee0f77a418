//! Facts that `taut check` reads on a host and in a guest, without judgement: `host` reads them,
//! `plan` judges them. An absent fact could not be read, which differs from a setting that is off.

mod report;

use std::collections::BTreeMap;
use std::fmt;

use crate::Bytes;
use crate::pnic::PnicSettings;

pub use report::{CheckLine, CheckReport, Profile, Summary, TakesEffect, Verdict};

/// A file that contains a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// Path below the root, without a leading slash.
    pub path: String,
    /// Value in force; for a file that lists choices (`always [madvise] never`), the chosen one.
    pub value: String,
    /// Choices of a file that lists them; else empty.
    pub choices: Vec<String>,
}

/// A change of the running host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new value for a file.
    File {
        /// Path below the root, without a leading slash.
        path: String,
        /// Value to write.
        value: String,
    },
    /// New settings of a network card.
    Card {
        /// Name of its interface.
        name: String,
        /// The settings that change.
        settings: PnicSettings,
    },
}

impl Change {
    /// Returns whether both change the same file or card.
    pub fn has_subject_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { path, .. }, Self::File { path: other, .. }) => path == other,
            (Self::Card { name, .. }, Self::Card { name: other, .. }) => name == other,
            (Self::File { .. }, Self::Card { .. }) | (Self::Card { .. }, Self::File { .. }) => false,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, value } => write!(f, "{path} = {value}"),
            Self::Card { name, settings } => write!(f, "{name}: {settings}"),
        }
    }
}

/// Facts about a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// CPUs.
    pub cpu: CpuFacts,
    /// Power management of its CPUs and buses.
    pub power: PowerFacts,
    /// Idle CPUs.
    pub idle: IdleFacts,
    /// Memory.
    pub memory: MemoryFacts,
    /// Limits of processes; absent if control groups are not visible.
    pub limits: Option<LimitFacts>,
    /// Kernel.
    pub kernel: KernelFacts,
    /// Network cards.
    pub network: NetworkFacts,
    /// Resources that VMs use; known only with a running `tautd`.
    pub commitment: Option<Commitment>,
}

/// Facts about CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuFacts {
    /// On-line logical CPUs.
    pub pcpus: u32,
    /// Cores with at least one on-line CPU.
    pub cores: u32,
    /// Packages (sockets) with at least one on-line CPU.
    pub packages: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// True if cores run several threads (SMT).
    pub smt: Option<bool>,
    /// Numbers of pCPUs on fast and on slow cores, for CPUs with both.
    pub hybrid: Option<(u32, u32)>,
    /// Vulnerability → mitigation of the kernel.
    pub vulnerabilities: BTreeMap<String, String>,
    /// True if this host is a VM.
    pub in_vm: bool,
    /// True if `/dev/kvm` exists.
    pub kvm: bool,
    /// KVM's hardware interrupt delivery: `enable_apicv` (Intel) or `avic` (AMD).
    pub interrupt_delivery: Option<Knob>,
}

/// Facts about power management.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PowerFacts {
    /// Driver that sets frequencies.
    pub driver: Option<String>,
    /// Frequency governor, per pCPU.
    pub governors: Vec<Knob>,
    /// Energy-performance preference, per pCPU.
    pub preferences: Vec<Knob>,
    /// Energy-performance bias (0 performance … 15 power), per pCPU.
    pub biases: Vec<Knob>,
    /// Frequencies above the nominal one.
    pub turbo: Option<Turbo>,
    /// Power profile of the firmware, if it offers one to Linux.
    pub profile: Option<Knob>,
    /// Sleep states of PCI Express links.
    pub aspm: Option<Knob>,
    /// Active profile of tuned.
    pub tuned: Option<String>,
}

/// Frequencies above the nominal one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turbo {
    /// The file: Intel's disables turbo, others enable it.
    pub knob: Knob,
    /// Value of the file that enables turbo.
    pub on: String,
}

/// Facts about idle CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdleFacts {
    /// Driver that enters C-states; `none` if the kernel only halts.
    pub driver: Option<String>,
    /// C-states, the shallowest first.
    pub states: Vec<IdleState>,
    /// `pm_qos_resume_latency_us` per pCPU: `0` no limit, `n/a` no latency at all.
    pub limits: Vec<Knob>,
    /// Latency bound that a process holds for all CPUs through `/dev/cpu_dma_latency`, in µs.
    pub dma_latency_us: Option<i32>,
    /// Time that KVM polls before a halted vCPU gives its pCPU away, in ns.
    pub halt_poll_ns: Option<Knob>,
}

/// A C-state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// Name that the driver gives it.
    pub name: String,
    /// Exit latency, in µs.
    pub exit_us: u32,
    /// Switch per pCPU: `0` if the state may be entered.
    pub disabled: Vec<Knob>,
}

/// Facts about memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// Kernel same-page merging: `0`, `1` or `2`.
    pub ksm: Option<Knob>,
    /// Transparent huge pages.
    pub thp: Option<Knob>,
    /// Defragmentation at a fault (transparent huge pages).
    pub thp_defrag: Option<Knob>,
    /// Pools of huge pages.
    pub pools: Vec<HugePool>,
    /// Size of all swap areas.
    pub swap: Option<Bytes>,
    /// Readiness to swap out anonymous memory.
    pub swappiness: Option<Knob>,
    /// Automatic NUMA balancing: migration of pages to the node that uses them.
    pub numa_balancing: Option<Knob>,
    /// Reclaim of a node's memory before memory of another node is used.
    pub zone_reclaim: Option<Knob>,
}

/// Limits that control groups can set for processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitFacts {
    /// Memory.
    pub memory: bool,
    /// Swap.
    pub swap: bool,
    /// Processes and threads.
    pub processes: bool,
}

/// A pool of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePool {
    /// Size of a page.
    pub size: Bytes,
    /// Pages in the pool.
    pub total: u64,
    /// Unused pages.
    pub free: u64,
}

/// Facts about the kernel and services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// `uname -r`.
    pub release: Option<String>,
    /// Words of the kernel command line.
    pub command_line: Vec<String>,
    /// Clock source.
    pub clock: Option<Knob>,
    /// Number of CPUs without a tick, as the kernel reports it.
    pub tickless: Option<u32>,
    /// Number of CPUs without load balancing.
    pub isolated: Option<u32>,
    /// The watchdog's periodic non-maskable interrupt.
    pub nmi_watchdog: Option<Knob>,
    /// True if timers may move to busy CPUs.
    pub timer_migration: Option<Knob>,
    /// True if irqbalance runs.
    pub irqbalance: Option<bool>,
}

/// Facts about the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkFacts {
    /// Cards with a device, by name.
    pub cards: Vec<Card>,
    /// Microseconds that a blocking read polls (`net.core.busy_read`).
    pub busy_read: Option<Knob>,
    /// Microseconds that `poll` polls (`net.core.busy_poll`).
    pub busy_poll: Option<Knob>,
    /// Number of IOMMU groups.
    pub iommu_groups: u32,
}

/// A network card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// Name of the interface.
    pub name: String,
    /// Kernel driver.
    pub driver: Option<String>,
    /// True if the card has a link.
    pub link: Option<bool>,
    /// Number of receive queues.
    pub queues: u32,
    /// The driver's `InterruptThrottleRate`, if its module shows one.
    pub throttle: Option<String>,
    /// Interrupt moderation, if the kernel reports it.
    pub moderation: Option<Moderation>,
    /// True if received TCP segments are merged (LRO), if the kernel reports it.
    pub lro: Option<bool>,
    /// Nanoseconds that merged packets are held (`gro_flush_timeout`).
    pub gro_flush: Option<Knob>,
    /// Interrupts deferred while polling finds nothing (`napi_defer_hard_irqs`).
    pub deferred_irqs: Option<Knob>,
    /// Number of virtual functions that the card supports.
    pub virtual_functions: u32,
}

/// Interrupt moderation of a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Microseconds that the interrupt of a received packet may wait; absent if the card has no
    /// such setting.
    pub rx_us: Option<u32>,
    /// True if the driver adapts the moderation; absent if it cannot.
    pub adaptive_rx: Option<bool>,
}

/// Resources that VMs use, and host settings that concern them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commitment {
    /// Number of running VMs.
    pub vms: u32,
    /// Sum of their vCPUs.
    pub vcpus: u32,
    /// Sum of their memory.
    pub memory: Bytes,
    /// Memory of the host.
    pub host_memory: Bytes,
    /// Accelerator of VMs.
    pub accelerator: String,
    /// Moderation of vNICs that follow the host.
    pub coalescing: String,
    /// Host setting of large receive offload.
    pub lro: bool,
}

/// Facts about a guest, read from inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestFacts {
    /// Kernel.
    pub kernel: KernelFacts,
    /// Idle CPUs.
    pub idle: IdleFacts,
    /// Memory.
    pub memory: MemoryFacts,
    /// Network cards.
    pub network: NetworkFacts,
    /// True if the machine is a VM at all.
    pub in_vm: bool,
    /// Names of the tables that a packet filter has registered.
    pub firewall: Option<Vec<String>>,
    /// SELinux: `enforcing`, `permissive`, or absent.
    pub selinux: Option<String>,
    /// Java processes.
    pub java: Vec<JavaProcess>,
}

/// A Java process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaProcess {
    /// Process ID.
    pub pid: u32,
    /// True if it was started with large pages.
    pub large_pages: bool,
}
