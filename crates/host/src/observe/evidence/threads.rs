//! Threads of the host: the last pCPU, the time run, and the time waited for a pCPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::kernel::task::{self, Schedstat, Stat};

/// The kernel's counters of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thread {
    pub(super) name: String,
    /// True if it is a kernel thread.
    pub(super) kernel: bool,
    /// The pCPU that it last ran on.
    pub(super) cpu: u32,
    pub(super) ran_ns: u64,
    /// Time that it was ready to run and waited.
    pub(super) waited_ns: u64,
    /// Number of times that it ran.
    pub(super) times: u64,
    /// Context switches, of vCPUs only: reading those of all threads would disturb the measurement.
    pub(super) switches: Option<Switches>,
}

/// The number of times that a thread left its pCPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Switches {
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
    pub(super) migrations: Option<u64>,
}

/// Reads all threads. Those that end meanwhile are left out.
pub(super) fn read(root: &Path, is_vcpu: impl Fn(u32) -> bool) -> BTreeMap<u32, Thread> {
    let processes = task::numbers(&root.join("proc")).unwrap_or_default().into_iter();
    let tasks = processes.flat_map(|pid| {
        let folder = root.join(format!("proc/{pid}/task"));
        task::numbers(&folder)
            .unwrap_or_default()
            .into_iter()
            .map(move |tid| (tid, folder.join(tid.to_string())))
    });
    tasks.filter_map(|(tid, folder)| Some((tid, thread(&folder, is_vcpu(tid))?))).collect()
}

fn thread(folder: &Path, is_vcpu: bool) -> Option<Thread> {
    let Stat { name, kernel, cpu, .. } = task::stat(folder)?;
    let Schedstat { ran_ns, waited_ns, times } = task::schedstat(folder)?;
    let switches = if is_vcpu { Some(switches(folder)?) } else { None };
    Some(Thread { name, kernel, cpu, ran_ns, waited_ns, times, switches })
}

fn switches(folder: &Path) -> Option<Switches> {
    let text = |name| fs::read_to_string(folder.join(name)).ok();
    let status = text("status")?;
    let count = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    Some(Switches {
        voluntary: count("voluntary_ctxt_switches:")?,
        involuntary: count("nonvoluntary_ctxt_switches:")?,
        migrations: text("sched").and_then(|sched| {
            let line = sched.lines().find(|line| line.starts_with("se.nr_migrations"))?;
            line.rsplit(':').next()?.trim().parse().ok()
        }),
    })
}

/// Returns why such a thread may run on a pCPU that a vCPU owns.
pub(super) fn why(name: &str, kernel: bool) -> &'static str {
    let bound = ["ksoftirqd/", "migration/", "cpuhp/", "rcuc/", "irq_work/", "idle_inject/"];
    match name {
        _ if !kernel => "its affinity allows it: it was there before, or another program bound it there",
        _ if bound.iter().any(|prefix| name.starts_with(prefix)) => {
            "the kernel's own for this pCPU: it cannot be moved"
        }
        _ if name.starts_with("kworker/") && !name.starts_with("kworker/u") => {
            "work that was queued on this pCPU: it cannot be moved"
        }
        _ if name.starts_with("rcu") => "RCU callbacks: rcu_nocbs= at the host's boot moves them",
        _ => "a thread of the kernel that is not bound elsewhere",
    }
}
