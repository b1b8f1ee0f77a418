//! All counters of the host at one time. Nothing is asked but the kernel, and `tautd` for ports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use taut_api::fabric::counters::PortCounters;
use taut_api::printable::printable;
use taut_api::route::PortInfo;
use taut_host::kernel::utilisation::{self, CpuTimes};
use taut_host::observe::disks::{self, Disk};
use taut_host::observe::interrupts::{self, Interrupts};
use taut_host::observe::load::HostMemory;
use taut_host::observe::machines::{DiskUse, Machines, MemoryUse};
use taut_host::observe::threads::{self, Thread, Threads};

/// Counters at one time.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Time since the first reading.
    pub at: Duration,
    /// Time in milliseconds since the Unix epoch.
    pub epoch_ms: u64,
    /// Counters of the pCPUs; none if they cannot be read.
    pub pcpus: CpuTimes,
    /// Memory of the host, if the kernel tells.
    pub memory: Option<HostMemory>,
    /// VMs, in the order of their processes.
    pub machines: Vec<Machine>,
    /// All threads of the host, by number.
    pub threads: BTreeMap<u32, Thread>,
    /// True if the kernel counts how long threads wait for block devices.
    pub delays_are_counted: bool,
    /// Block devices.
    pub disks: Vec<Disk>,
    /// Interrupts.
    pub interrupts: Interrupts,
    /// Ports; none if `tautd` does not answer.
    pub ports: Option<Vec<Port>>,
}

/// A VM, whoever has started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its process.
    pub pid: u32,
    /// Start of its process, in clock ticks since the boot.
    pub started: u64,
    /// Name by its command line, without characters that a terminal would obey.
    pub name: String,
    /// Thread of each vCPU; empty if the threads' names do not tell them.
    pub vcpus: BTreeMap<u32, u32>,
    /// Time that its other threads ran, in nanoseconds from when it was first seen.
    pub others_ns: u64,
    /// Time that a limit kept it from running, in nanoseconds, if its control groups count that.
    pub throttled_ns: Option<u64>,
    /// Memory of its process.
    pub memory: Option<MemoryUse>,
    /// What its process has moved to and from disks, if the caller may read that.
    pub disk: Option<DiskUse>,
}

/// A port of the fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Number of the port.
    pub number: u32,
    /// Owner of the port, such as `vm/web1/nic0`.
    pub owner: String,
    /// vSwitch of the port.
    pub vswitch: String,
    /// Counters since it has this owner.
    pub counters: PortCounters,
}

/// Asks for the ports of the fabric; returns nothing if nobody answers in time.
pub type PortSource = Box<dyn FnMut() -> Option<Vec<PortInfo>>>;

/// Reads the counters of a host again and again.
pub struct Reader {
    root: PathBuf,
    begun: Instant,
    machines: Machines,
    threads: Threads,
    ports: PortSource,
}

impl Reader {
    /// Begins to read the host below `root`, and ports from `ports`.
    pub fn new(root: &Path, ports: PortSource) -> Self {
        Self {
            root: root.to_owned(),
            begun: Instant::now(),
            machines: Machines::new(root),
            threads: Threads::new(root),
            ports,
        }
    }

    /// Reads all counters.
    pub fn read(&mut self) -> Reading {
        // Ports come first: the daemon may take its time.
        let ports = (self.ports)().map(|ports| ports.into_iter().map(port).collect());
        let at = self.begun.elapsed();
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let threads: Vec<_> = self.threads.read();
        let machines = self.read_machines(&threads);
        Reading {
            at,
            epoch_ms: epoch.as_millis() as u64,
            pcpus: utilisation::read(&self.root).unwrap_or_default(),
            memory: HostMemory::read(&self.root),
            machines,
            threads: threads.into_iter().map(|thread| (thread.tid, thread)).collect(),
            delays_are_counted: threads::delays_are_counted(&self.root),
            disks: disks::read(&self.root),
            interrupts: interrupts::read(&self.root),
            ports,
        }
    }

    fn read_machines(&mut self, threads: &[Thread]) -> Vec<Machine> {
        let mut vcpus = BTreeMap::<u32, BTreeMap<u32, u32>>::new();
        for thread in threads {
            if let Some(vcpu) = thread.vcpu {
                vcpus.entry(thread.pid).or_default().insert(vcpu, thread.tid);
            }
        }
        let machine = |found: taut_host::observe::machines::Machine| {
            let vcpus = vcpus.remove(&found.pid).unwrap_or_default();
            Machine {
                pid: found.pid,
                started: found.started,
                name: printable(&found.name.unwrap_or_else(|| format!("process {}", found.pid))),
                vcpus,
                others_ns: found.others.ran_ns,
                throttled_ns: found.throttled_ns,
                memory: found.memory,
                disk: found.disk,
            }
        };
        self.machines.read().into_iter().map(machine).collect()
    }
}

fn port(info: PortInfo) -> Port {
    Port {
        number: info.port,
        owner: printable(&info.owner),
        vswitch: info.vswitch.to_string(),
        counters: info.counters,
    }
}
