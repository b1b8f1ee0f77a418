//! Counters of the host at one time: those that a view needs. Nothing is asked but the kernel, and
//! `tautd` for ports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use taut_api::fabric::counters::PortCounters;
use taut_api::printable::{MOST_NAME, printable};
use taut_api::route::PortInfo;
use taut_host::kernel::utilisation::{self, CpuTimes};
use taut_host::observe::disks::{self, Disk};
use taut_host::observe::interrupts::{self, Interrupts};
use taut_host::observe::load::HostMemory;
use taut_host::observe::processes::{
    Detail, DiskUse, Found, MemoryUse, Needs as ProcessNeeds, Processes, Thread, delays_are_counted,
};

use crate::view::View;

/// Figures that a reading is for. Every reading has the pCPUs, the memory of the host, and names of
/// VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Figures of processes.
    pub processes: ProcessNeeds,
    /// Ports: the only figures that somebody is asked for.
    pub ports: bool,
    /// Block devices.
    pub disks: bool,
    /// Interrupts.
    pub interrupts: bool,
}

impl Needs {
    /// The least that a reading has.
    pub const LEAST: Self =
        Self { processes: ProcessNeeds::LEAST, ports: false, disks: false, interrupts: false };

    /// Returns what a view needs.
    pub const fn of(view: View) -> Self {
        let least = ProcessNeeds::LEAST;
        match view {
            View::Cpu => {
                let processes = ProcessNeeds { threads: Detail::Places, throttling: true, ..least };
                Self { processes, ..Self::LEAST }
            }
            View::Memory => Self { processes: ProcessNeeds { memory: true, ..least }, ..Self::LEAST },
            View::VmDisk => Self { processes: ProcessNeeds { disk: true, ..least }, ..Self::LEAST },
            View::Network => Self { ports: true, ..Self::LEAST },
            View::Disk => Self { disks: true, ..Self::LEAST },
            View::Interrupt => Self { interrupts: true, ..Self::LEAST },
        }
    }

    /// Returns what serves both needs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            processes: self.processes.and(other.processes),
            ports: self.ports || other.ports,
            disks: self.disks || other.disks,
            interrupts: self.interrupts || other.interrupts,
        }
    }

    /// Returns whether a reading for these needs serves other ones, too.
    pub fn covers(self, other: Self) -> bool {
        self.and(other) == self
    }
}

/// Counters at one time.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Time since the reader began; that of everything but ports.
    pub at: Duration,
    /// Time in milliseconds since the Unix epoch.
    pub epoch_ms: u64,
    /// Counters of the pCPUs; none if they cannot be read.
    pub pcpus: CpuTimes,
    /// Memory of the host, if the kernel tells.
    pub memory: Option<HostMemory>,
    /// VMs, in the order of their processes.
    pub machines: Vec<Machine>,
    /// Number of VMs and other processes that were left out, because there are too many.
    pub left_out: usize,
    /// All threads of the host, by number; none unless they were needed.
    pub threads: BTreeMap<u32, Thread>,
    /// True if the kernel counts how long threads wait for block devices.
    pub delays_are_counted: bool,
    /// Block devices.
    pub disks: Vec<Disk>,
    /// Interrupts.
    pub interrupts: Interrupts,
    /// Ports, and the time since the reader began at which they were asked for; none if `tautd`
    /// does not answer, or if they were not needed.
    pub ports: Option<(Duration, Vec<Port>)>,
}

/// A VM, whoever has started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its process.
    pub pid: u32,
    /// Start of its process, in clock ticks since the boot.
    pub started: u64,
    /// Name by its command line, printable.
    pub name: String,
    /// Number of its threads.
    pub threads: usize,
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

/// Lets this program open as many files as it may. Counters of threads are read from files that
/// stay open, if there is room for them.
pub fn allow_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Without them, a reading takes longer.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Reads the counters of a host again and again.
pub struct Reader {
    root: PathBuf,
    begun: Instant,
    processes: Processes,
    ports: PortSource,
}

impl Reader {
    /// Begins to read the host below `root`, and ports from `ports`.
    pub fn new(root: &Path, ports: PortSource) -> Self {
        let processes = Processes::new(root);
        Self { root: root.to_owned(), begun: Instant::now(), processes, ports }
    }

    /// Reads the counters that are needed.
    pub fn read(&mut self, needs: Needs) -> Reading {
        // Ports come first: the daemon may take its time. It reads the counters when it is asked,
        // and not when it has answered.
        let asked_at = self.begun.elapsed();
        let ports = if needs.ports { (self.ports)() } else { None };
        let ports = ports.map(|ports| (asked_at, ports.into_iter().map(port).collect()));
        let at = self.begun.elapsed();
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let has_places = needs.processes.threads == Detail::Places;
        let Found { machines, threads, machines_left_out, others_left_out } =
            self.processes.read(needs.processes, |_| false);
        Reading {
            at,
            epoch_ms: epoch.as_millis() as u64,
            pcpus: utilisation::read(&self.root).unwrap_or_default(),
            memory: HostMemory::read(&self.root),
            machines: machines.iter().map(Arc::as_ref).map(machine).collect(),
            left_out: machines_left_out + others_left_out,
            threads: threads.into_iter().map(|thread| (thread.tid, thread)).collect(),
            delays_are_counted: has_places && delays_are_counted(&self.root),
            disks: if needs.disks { disks::read(&self.root) } else { Vec::new() },
            interrupts: if needs.interrupts { interrupts::read(&self.root) } else { Interrupts::default() },
            ports,
        }
    }
}

fn machine(found: &taut_host::observe::processes::Machine) -> Machine {
    Machine {
        pid: found.pid,
        started: found.started,
        name: found.name.as_ref().map_or_else(|| format!("process {}", found.pid), ToString::to_string),
        threads: found.threads,
        vcpus: found.vcpus.iter().map(|(vcpu, of)| (*vcpu, of.tid)).collect(),
        others_ns: found.others.ran_ns,
        throttled_ns: found.throttled_ns,
        memory: found.memory,
        disk: found.disk,
    }
}

fn port(info: PortInfo) -> Port {
    Port {
        number: info.port,
        owner: printable(&info.owner, MOST_NAME),
        vswitch: info.vswitch.to_string(),
        counters: info.counters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_needs_something_and_all_of_them_what_each_one_needs() {
        let all = View::ALL.into_iter().map(Needs::of).fold(Needs::LEAST, Needs::and);
        for view in View::ALL {
            assert!(all.covers(Needs::of(view)) && !Needs::LEAST.covers(Needs::of(view)), "{view}");
        }
        assert!(!Needs::of(View::Cpu).covers(Needs::of(View::Memory)));
        // The daemon is asked only for the view that shows ports.
        let asked = View::ALL.into_iter().filter(|view| Needs::of(*view).ports).collect::<Vec<_>>();
        assert_eq!(asked, [View::Network]);
    }
}
