//! Real-time priority for the threads that a VM with exclusive pCPUs depends on (LS-3).
//!
//! The fabric, and the VM's own threads other than vCPUs, share the remaining pCPUs with all other
//! tasks. There a frame would wait for milliseconds until a CPU-bound neighbour's time slice ends.
//! Therefore these threads get `SCHED_FIFO` at its lowest priority while a VM owns pCPUs. To keep
//! the host responsive, a process of which a thread uses more than [`MAX_PERCENT`] of a pCPU loses
//! the priority for [`PAUSE`]. A thread that such a process creates later gets the priority in the
//! next round, within about a second.
//!
//! vCPUs do not get the priority, and lose it if they inherited it from the thread that created
//! them. A vCPU that never sleeps would hold up the kernel's threads on its pCPU and, until it has
//! a pCPU of its own, all threads that share one with it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use taut_api::enforcement::{GreedyProcess, HostPlan, HostReport};

use crate::kernel::scheduler::Class;
use crate::kernel::{affinity, real_time, task};
use crate::ledger::record::{PriorityRecord, ScheduledBefore};
use crate::ledger::{Ledger, LedgerError};

/// Maximum time that a thread with real-time priority may use, in percent of a pCPU.
const MAX_PERCENT: u64 = 85;
/// Minimum time over which a thread's use is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Time without real-time priority after a thread used too much.
const PAUSE: Duration = Duration::from_secs(10);
/// Real-time budgets to try for a control group, in microseconds per second, for kernels that have
/// such budgets. A lower one is needed if other groups have most of the total.
const BUDGETS_US: [&str; 4] = ["500000", "250000", "100000", "50000"];

/// File of a group's real-time budget.
const RT: &str = "cpu.rt_runtime_us";

/// The part of enforcement that gives threads real-time priority.
#[derive(Debug)]
pub(super) struct RealtimePriority {
    root: PathBuf,
    ledger: Ledger,
    /// Changes so far, as in the ledger.
    record: PriorityRecord,
    used: BTreeMap<u32, Used>,
    put: Putter,
}

/// A thread's number and its folder in `/proc`.
type Thread = (u32, PathBuf);

/// Puts a thread, given by its folder in `/proc` and its number, into a class.
type Putter = fn(&Path, u32, Class) -> io::Result<()>;

/// CPU time that a process has used.
#[derive(Debug, Clone)]
struct Used {
    since: Instant,
    /// Time that each thread had used at `since`, in nanoseconds.
    ran_ns: BTreeMap<u32, u64>,
    /// Time until which the process has no real-time priority.
    paused_until: Option<Instant>,
}

impl RealtimePriority {
    /// Reads from the ledger what an earlier process did. See [`super::Enforcer::new`].
    pub(super) fn new(root: &Path, ledger: Ledger) -> Result<Self, LedgerError> {
        let put: Putter = |_, tid, class| class.put(tid);
        let record = ledger.book()?.priority;
        Ok(Self { root: root.to_owned(), record, ledger, used: BTreeMap::new(), put })
    }

    /// Takes real-time priority from these processes while they move to other control groups. A new
    /// group has no real-time budget and accepts no thread with that priority. The next
    /// [`RealtimePriority::settle`] gives it back.
    pub(super) fn pause(&self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            if let Some(before) = self.record.processes.get(&pid)
                && self.began(pid) == Some(before.began)
            {
                // If this fails, the move fails and is reported.
                let _ = self.take(&self.all_threads(pid), before.class);
            }
        }
    }

    /// Returns whether nothing on the host is changed.
    pub(super) fn is_idle(&self) -> bool {
        self.record.is_empty()
    }

    /// Gives real-time priority to the processes of the plan, and takes it from all others.
    pub(super) fn settle(
        &mut self,
        plan: &HostPlan,
        now: Instant,
        report: &mut HostReport,
    ) -> Result<(), LedgerError> {
        report.priority_problems.clear();
        let of_vms = plan.vms.values().filter(|vm| vm.priority).map(|vm| vm.pid);
        let mut pids: Vec<u32> = of_vms.chain(plan.fabric).collect();
        if pids.is_empty() && self.record.is_empty() {
            return Ok(());
        }
        self.used.retain(|pid, _| pids.contains(pid));
        pids.retain(|pid| self.is_within_bounds(*pid, now, report));
        self.record_before(&pids)?;
        for file in self.record.files.keys() {
            // A group's budget is part of that of the group above. A group removed next to it keeps
            // its budget for a moment longer.
            let above = file.ancestors().skip(2).filter(|dir| self.record.files.contains_key(&dir.join(RT)));
            give_budget(file, above.count());
        }
        for &pid in &pids {
            if let Err(error) = self.give(pid) {
                let problem = format!("threads of process {pid} cannot get real-time priority: {error}");
                report.priority_problems.push(problem);
            }
        }
        let left = self.release_other_processes(&pids, report);
        self.keep(left)
    }

    /// Records the processes that are about to change, and the budgets of their groups.
    fn record_before(&mut self, pids: &[u32]) -> Result<(), LedgerError> {
        let mut next = self.record.clone();
        for &pid in pids {
            if let Some(now) = self.scheduled_now(pid)
                && next.processes.get(&pid).is_none_or(|known| known.began != now.began)
            {
                next.processes.insert(pid, now);
            }
            let cgroup = format!("proc/{pid}/cgroup");
            if let Some((file, content)) = real_time::group_without_budget(&self.root, Path::new(&cgroup)) {
                next.files.entry(file).or_insert(content);
            }
        }
        self.keep(next)
    }

    /// Takes the priority from all processes but `pids`. Returns what is still to be undone.
    fn release_other_processes(&self, pids: &[u32], report: &mut HostReport) -> PriorityRecord {
        let mut left = self.record.clone();
        for (pid, before) in self.record.processes.iter().filter(|(pid, _)| !pids.contains(pid)) {
            if self.began(*pid) == Some(before.began)
                && let Err(error) = self.take(&self.all_threads(*pid), before.class)
            {
                let problem = format!("threads of process {pid} cannot be put back: {error}");
                report.priority_problems.push(problem);
                continue;
            }
            left.processes.remove(pid);
        }
        if left.processes.is_empty() {
            // A group's budget is returned before that of the group above, of which it is a part. A
            // file that has gone disappeared with its group; one that cannot be written is tried
            // again.
            let kept =
                |(file, content): &(PathBuf, String)| fs::write(file, content).is_err() && file.exists();
            left.files = left.files.into_iter().rev().filter(kept).collect();
        }
        left
    }

    /// Writes the record to the ledger if it has changed.
    fn keep(&mut self, record: PriorityRecord) -> Result<(), LedgerError> {
        if record != self.record {
            self.ledger.record(|book| book.priority.clone_from(&record))?;
            self.record = record;
        }
        Ok(())
    }

    /// Gives real-time priority to the threads of a process other than its vCPUs. Takes the
    /// priority from vCPUs that inherited it.
    fn give(&self, pid: u32) -> io::Result<()> {
        let (vcpus, others) = self.threads(pid);
        let taken = self.record.processes.get(&pid).map_or(Ok(()), |before| self.take(&vcpus, before.class));
        self.set_class(&others, Class::REAL_TIME, |class| class != Class::REAL_TIME).and(taken)
    }

    /// Puts threads with real-time priority into the class that their process had before it was
    /// given the priority.
    fn take(&self, threads: &[Thread], before: Class) -> io::Result<()> {
        self.set_class(threads, before, |class| class == Class::REAL_TIME && class != before)
    }

    /// Puts threads into a class if `is_other` accepts their present one.
    fn set_class(
        &self,
        threads: &[Thread],
        class: Class,
        is_other: impl Fn(Class) -> bool,
    ) -> io::Result<()> {
        for (tid, folder) in threads {
            if !Class::of(folder).is_some_and(&is_other) {
                continue;
            }
            match (self.put)(folder, *tid, class) {
                // The thread has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Returns the vCPUs of a process, and its other threads.
    fn threads(&self, pid: u32) -> (Vec<Thread>, Vec<Thread>) {
        let is_vcpu = |(_, folder): &Thread| {
            let comm = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            affinity::vcpu_of(comm.trim()).is_some()
        };
        self.all_threads(pid).into_iter().partition(is_vcpu)
    }

    fn all_threads(&self, pid: u32) -> Vec<Thread> {
        let folder = self.root.join(format!("proc/{pid}/task"));
        let numbers = task::numbers(&folder).unwrap_or_default().into_iter();
        numbers.map(|tid| (tid, folder.join(tid.to_string()))).collect()
    }

    fn scheduled_now(&self, pid: u32) -> Option<ScheduledBefore> {
        let class = Class::of(&self.root.join(format!("proc/{pid}/task/{pid}")))?;
        Some(ScheduledBefore { began: self.began(pid)?, class })
    }

    fn began(&self, pid: u32) -> Option<u64> {
        task::started(&self.root.join(format!("proc/{pid}"))).ok()
    }

    /// Returns whether a process uses no more than it may. Its use is measured while it has the
    /// priority.
    fn is_within_bounds(&mut self, pid: u32, now: Instant, report: &mut HostReport) -> bool {
        let ran_ns = self.ran_ns(pid);
        let begin = |ran_ns| Used { since: now, ran_ns, paused_until: None };
        let Some(used) = self.used.get_mut(&pid) else {
            self.used.insert(pid, begin(ran_ns));
            return true;
        };
        if used.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        let time = now.saturating_duration_since(used.since);
        if used.paused_until.is_none() && time < WINDOW {
            return true;
        }
        // A thread that was created in the meantime has run since then.
        let before = |tid| used.ran_ns.get(tid).copied().unwrap_or(0);
        let most = ran_ns.iter().map(|(tid, ran)| ran.saturating_sub(before(tid))).max();
        let percent = most.unwrap_or(0) * 100 / (time.as_nanos() as u64).max(1);
        let was_paused = used.paused_until.is_some();
        *used = begin(ran_ns);
        if percent <= MAX_PERCENT || was_paused {
            return true;
        }
        used.paused_until = Some(now + PAUSE);
        let (allowed_percent, pause_s) = (MAX_PERCENT, PAUSE.as_secs());
        report.greedy.push(GreedyProcess { pid, percent, allowed_percent, pause_s });
        false
    }

    /// Returns the time that each thread other than a vCPU has run, in nanoseconds.
    fn ran_ns(&self, pid: u32) -> BTreeMap<u32, u64> {
        let ran = |(tid, folder): (u32, PathBuf)| {
            let text = fs::read_to_string(folder.join("schedstat")).ok()?;
            Some((tid, text.split_whitespace().next()?.parse().ok()?))
        };
        let (_, others) = self.threads(pid);
        others.into_iter().filter_map(ran).collect()
    }
}

/// Gives a group without real-time budget one: the more groups above it have got theirs, the
/// smaller. If no budget is left, setting the threads' priority fails and is reported.
fn give_budget(file: &Path, above: usize) {
    let has_none = fs::read_to_string(file).is_ok_and(|now| now.trim() == "0");
    if has_none {
        let _ = BUDGETS_US[above.min(BUDGETS_US.len() - 1)..].iter().any(|us| fs::write(file, us).is_ok());
    }
}

#[cfg(test)]
mod tests;
