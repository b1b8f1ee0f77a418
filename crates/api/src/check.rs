//! What `taut check` finds on a host and in a guest (SPEC BP): facts, without judgement. `host` reads them, `plan` judges
//! them. What is absent could not be read: that is different from being off.

use std::collections::BTreeMap;

use crate::Bytes;

/// A file whose content is a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// Path below the root, without a leading slash.
    pub path: String,
    /// The value in force; of a file that lists choices (`always [madvise] never`) the chosen one.
    pub value: String,
    /// The choices of such a file; else empty.
    pub choices: Vec<String>,
}

/// A value that a file is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Path below the root, without a leading slash.
    pub path: String,
    /// What is to be written.
    pub value: String,
}

/// A host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Its CPUs.
    pub cpu: CpuFacts,
    /// Power management of its CPUs and buses.
    pub power: PowerFacts,
    /// What its CPUs do when they have nothing to do.
    pub idle: IdleFacts,
    /// Its memory.
    pub memory: MemoryFacts,
    /// Its kernel.
    pub kernel: KernelFacts,
    /// Its network cards.
    pub network: NetworkFacts,
    /// What its VMs were promised; only a `tautd` knows.
    pub commitment: Option<Commitment>,
}

/// CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuFacts {
    /// On-line logical CPUs.
    pub pcpus: u32,
    /// Cores with at least one of them.
    pub cores: u32,
    /// Packages (sockets) with at least one of them.
    pub packages: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// Do cores run several threads?
    pub smt: Option<bool>,
    /// pCPUs of fast and of slow cores, on CPUs that have both.
    pub hybrid: Option<(u32, u32)>,
    /// Flaw → what the kernel does about it.
    pub vulnerabilities: BTreeMap<String, String>,
    /// Is this host itself a VM?
    pub in_vm: bool,
    /// Is there a KVM?
    pub kvm: bool,
    /// KVM's hardware interrupt delivery: `enable_apicv` (Intel) or `avic` (AMD).
    pub interrupt_delivery: Option<Knob>,
}

/// Power management.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PowerFacts {
    /// The driver that sets frequencies.
    pub driver: Option<String>,
    /// Per pCPU.
    pub governors: Vec<Knob>,
    /// Energy-performance preference, per pCPU.
    pub preferences: Vec<Knob>,
    /// Energy-performance bias (0 performance … 15 power), per pCPU.
    pub biases: Vec<Knob>,
    /// Frequencies above the nominal one.
    pub turbo: Option<Turbo>,
    /// The firmware's profile, where it offers one to Linux.
    pub profile: Option<Knob>,
    /// Sleep states of PCI Express links.
    pub aspm: Option<Knob>,
    /// The profile that tuned keeps.
    pub tuned: Option<String>,
}

/// Frequencies above the nominal one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turbo {
    /// The switch: Intel's says "no", others say "yes".
    pub knob: Knob,
    /// Its value that means on.
    pub on: String,
}

/// Idle CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdleFacts {
    /// The driver that enters C-states; `none` when the kernel only halts.
    pub driver: Option<String>,
    /// C-states, the shallowest first.
    pub states: Vec<IdleState>,
    /// `pm_qos_resume_latency_us` per pCPU: `0` no limit, `n/a` no latency at all.
    pub limits: Vec<Knob>,
    /// The bound that a process holds for all CPUs, µs.
    pub dma_latency_us: Option<i32>,
    /// How long KVM polls before a halted vCPU gives its pCPU away, ns.
    pub halt_poll_ns: Option<Knob>,
}

/// A C-state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// As the driver calls it.
    pub name: String,
    /// Time until the CPU runs again, µs.
    pub exit_us: u32,
    /// Its switch per pCPU: `0` the state may be entered.
    pub disabled: Vec<Knob>,
}

/// Memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// Merging of equal pages: `0`, `1` or `2`.
    pub ksm: Option<Knob>,
    /// Transparent huge pages.
    pub thp: Option<Knob>,
    /// What a fault does to get one.
    pub thp_defrag: Option<Knob>,
    /// Pools of huge pages.
    pub pools: Vec<HugePool>,
    /// Size of all swap areas.
    pub swap: Option<Bytes>,
    /// How readily anonymous memory is swapped out.
    pub swappiness: Option<Knob>,
    /// Moving of pages to the node that uses them.
    pub numa_balancing: Option<Knob>,
    /// Reclaiming a node's memory before another's is used.
    pub zone_reclaim: Option<Knob>,
}

/// A pool of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePool {
    /// Size of a page.
    pub size: Bytes,
    /// Pages in the pool.
    pub total: u64,
    /// Of them unused.
    pub free: u64,
}

/// The kernel and what runs beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// `uname -r`.
    pub release: Option<String>,
    /// Words of the kernel command line.
    pub command_line: Vec<String>,
    /// Clock source.
    pub clock: Option<Knob>,
    /// Number of CPUs without a tick, by the kernel's own word.
    pub tickless: Option<u32>,
    /// Number of CPUs without load balancing.
    pub isolated: Option<u32>,
    /// The watchdog's periodic non-maskable interrupt.
    pub nmi_watchdog: Option<Knob>,
    /// May timers move to busy CPUs?
    pub timer_migration: Option<Knob>,
    /// Does irqbalance run?
    pub irqbalance: Option<bool>,
}

/// Network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkFacts {
    /// Cards with a device behind them, by name.
    pub cards: Vec<Card>,
    /// Microseconds that a blocking read polls.
    pub busy_read: Option<Knob>,
    /// Microseconds that `poll` polls.
    pub busy_poll: Option<Knob>,
    /// Groups of devices that the IOMMU can hand over.
    pub iommu_groups: u32,
}

/// A network card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// Interface.
    pub name: String,
    /// Kernel driver.
    pub driver: Option<String>,
    /// Has it a link?
    pub link: Option<bool>,
    /// Receive queues.
    pub queues: u32,
    /// The driver's `InterruptThrottleRate`, where its module shows one.
    pub throttle: Option<String>,
    /// Interrupt moderation, where the kernel could be asked.
    pub moderation: Option<Moderation>,
    /// Are received TCP segments merged (LRO), where the kernel could be asked?
    pub lro: Option<bool>,
    /// Nanoseconds that merged packets are kept.
    pub gro_flush: Option<Knob>,
    /// Interrupts put off while polling finds nothing.
    pub deferred_irqs: Option<Knob>,
    /// Virtual functions that it could have.
    pub virtual_functions: u32,
}

/// Interrupt moderation of a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Microseconds that a received packet's interrupt may wait.
    pub rx_us: u32,
    /// Does the driver choose by itself?
    pub adaptive_rx: bool,
}

/// What VMs were promised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commitment {
    /// Running VMs.
    pub vms: u32,
    /// Their vCPUs together.
    pub vcpus: u32,
    /// Their memory together.
    pub memory: Bytes,
    /// The host's memory.
    pub host_memory: Bytes,
    /// How VMs run.
    pub accelerator: String,
    /// Moderation of vNICs that have none of their own.
    pub coalescing: String,
    /// LRO of vNICs that have it on themselves.
    pub lro: bool,
}

/// A guest, from inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestFacts {
    /// Its kernel.
    pub kernel: KernelFacts,
    /// What its CPUs do when they have nothing to do.
    pub idle: IdleFacts,
    /// Its memory.
    pub memory: MemoryFacts,
    /// Its network cards.
    pub network: NetworkFacts,
    /// Is it a VM at all?
    pub in_vm: bool,
    /// Tables that a packet filter has registered, by what they are called.
    pub firewall: Option<Vec<String>>,
    /// SELinux: `enforcing`, `permissive`, or absent.
    pub selinux: Option<String>,
    /// Java processes and whether each was told to use large pages.
    pub java: Vec<JavaProcess>,
}

/// A Java process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaProcess {
    /// Process number.
    pub pid: u32,
    /// Was it started with large pages?
    pub large_pages: bool,
}
