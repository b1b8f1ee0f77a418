//! Who goes first where an exclusive pCPU's VM has to wait for others: the fabric, and the VM's own threads besides its vCPUs.
//!
//! Those share what is left of the host with everybody else (SPEC LS-3), and a frame that waits there for a time slice of a CPU-bound
//! neighbour waits for milliseconds. So they are put into `SCHED_FIFO`, at its lowest priority, as long as a VM owns pCPUs. They are
//! not to starve the host by that: where a thread uses more than [`MOST`] of a pCPU, its process is ordinary again for [`BACK`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::affinity;
use crate::ledger::{Ledger, LedgerError};
use crate::real_time;
use crate::scheduler::Class;

/// Most time of a pCPU that a thread may use while it goes first, in percent.
pub const MOST: u64 = 85;
/// Measured over at least that long.
const WINDOW: Duration = Duration::from_secs(1);
/// How long one that used more is ordinary.
pub const BACK: Duration = Duration::from_secs(10);
/// Real-time microseconds in a second that a control group gets whose threads are to go first, where the kernel keeps accounts of that;
/// less where other groups have most of what there is.
const GROUP_US: [&str; 4] = ["500000", "250000", "100000", "50000"];

/// A group's file of it.
const RT: &str = "cpu.rt_runtime_us";

/// What was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Processes whose threads were put into another class, and how they were before.
    processes: BTreeMap<u32, Before>,
    /// Files that were changed for it, and what they contained.
    #[serde(default)]
    files: BTreeMap<PathBuf, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Before {
    /// When the process began, in ticks since the host's boot: another one may have its number later.
    began: u64,
    /// What its first thread was in, and all others.
    class: Class,
}

impl Record {
    /// Is everything as it was?
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.files.is_empty()
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Processes that have just used too much, with the percentage.
    pub greedy: BTreeMap<u32, u64>,
    /// What could not be done.
    pub problems: Vec<String>,
}

/// The lever of one host.
#[derive(Debug)]
pub struct Precedence {
    root: PathBuf,
    ledger: Ledger,
    /// What was changed, as the ledger has it.
    record: Record,
    used: BTreeMap<u32, Used>,
    put: Putter,
}

/// Puts the thread of a folder in `/proc` into a class.
type Putter = fn(&Path, u32, Class) -> io::Result<()>;

/// What a process has used.
#[derive(Debug, Clone)]
struct Used {
    since: Instant,
    /// Up to then, by each thread.
    ran_ns: BTreeMap<u32, u64>,
    /// It is ordinary until then.
    back_until: Option<Instant>,
}

impl Precedence {
    /// The host whose file system starts at `root`; `ledger` has what an earlier one changed.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn new(root: &Path, ledger: Ledger) -> Result<Self, LedgerError> {
        let put: Putter = |_, tid, class| class.put(tid);
        Ok(Self { root: root.to_owned(), record: ledger.precedence()?, ledger, used: BTreeMap::new(), put })
    }

    /// Has the threads of these processes take turns with everybody else while they are moved to other control groups: where the kernel
    /// shares real-time out among groups, a new one has none and takes no thread that goes first. The next [`Precedence::settle`] finds
    /// them where they are then.
    pub fn pause(&self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            if let Some(before) = self.record.processes.get(&pid)
                && self.began(pid) == Some(before.began)
            {
                // Of one that stays as it is, the move tells what came of it.
                let _ = self.put(pid, before.class, |class| class == Class::FIRST);
            }
        }
    }

    /// Is nothing changed?
    pub fn is_idle(&self) -> bool {
        self.record.is_empty()
    }

    /// Has the threads of these processes, other than vCPUs, go first, and nobody else's.
    ///
    /// # Errors
    /// When the ledger cannot be kept; nothing was changed then, or what was changed is in it.
    pub fn settle(&mut self, wanted: &[u32], now: Instant) -> Result<Outcome, LedgerError> {
        let mut outcome = Outcome::default();
        if wanted.is_empty() && self.record.is_empty() {
            return Ok(outcome);
        }
        self.used.retain(|pid, _| wanted.contains(pid));
        let first: Vec<u32> =
            wanted.iter().copied().filter(|pid| self.is_within(*pid, now, &mut outcome)).collect();
        let kept = self.record.clone();
        for &pid in &first {
            if let Some(before) = self.before(pid)
                && self.record.processes.get(&pid).is_none_or(|known| known.began != before.began)
            {
                self.record.processes.insert(pid, before);
            }
            if let Some((file, content)) =
                real_time::without(&self.root, Path::new(&format!("proc/{pid}/cgroup")))
            {
                self.record.files.entry(file).or_insert(content);
            }
        }
        if self.record != kept {
            self.ledger.note_precedence(&self.record)?;
        }
        let changed = self.record.clone();
        for file in changed.files.keys() {
            // Part of what the group above has; and one that was just removed beside it has its part for a moment longer.
            let above = file.ancestors().skip(2).filter(|dir| changed.files.contains_key(&dir.join(RT)));
            share(file, above.count());
        }
        for &pid in &first {
            if let Err(error) = self.put(pid, Class::FIRST, |class| class != Class::FIRST) {
                outcome.problems.push(format!("threads of process {pid} cannot go before others: {error}"));
            }
        }
        for (pid, before) in changed.processes.iter().filter(|(pid, _)| !first.contains(pid)) {
            if self.began(*pid) == Some(before.began)
                && let Err(error) = self.put(*pid, before.class, |class| class == Class::FIRST)
            {
                outcome.problems.push(format!("threads of process {pid} cannot be put back: {error}"));
                continue;
            }
            self.record.processes.remove(pid);
        }
        if self.record.processes.is_empty() {
            // What a group has is part of what the one above it has: it is given back first. One that is gone has gone with its group; one
            // that cannot be given back yet is tried again.
            let kept =
                |(file, content): &(PathBuf, String)| fs::write(file, content).is_err() && file.exists();
            self.record.files =
                std::mem::take(&mut self.record.files).into_iter().rev().filter(kept).collect();
        }
        if self.record != changed {
            self.ledger.note_precedence(&self.record)?;
        }
        Ok(outcome)
    }

    /// Puts threads of a process that are no vCPUs into a class, those whose own is one that `is_other`.
    fn put(&self, pid: u32, class: Class, is_other: impl Fn(Class) -> bool) -> io::Result<()> {
        for (tid, folder) in self.threads(pid) {
            if !Class::of(&folder).is_some_and(&is_other) {
                continue;
            }
            match (self.put)(&folder, tid, class) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Threads of a process other than its vCPUs.
    fn threads(&self, pid: u32) -> Vec<(u32, PathBuf)> {
        let vcpus = affinity::vcpus(&self.root, pid);
        let tasks = fs::read_dir(self.root.join(format!("proc/{pid}/task"))).into_iter().flatten().flatten();
        let numbered = tasks.filter_map(|task| Some((task.file_name().to_str()?.parse().ok()?, task.path())));
        numbered.filter(|(tid, _)| !vcpus.values().any(|vcpu| vcpu == tid)).collect()
    }

    fn before(&self, pid: u32) -> Option<Before> {
        let class = Class::of(&self.root.join(format!("proc/{pid}/task/{pid}")))?;
        Some(Before { began: self.began(pid)?, class })
    }

    fn began(&self, pid: u32) -> Option<u64> {
        let stat = fs::read_to_string(self.root.join(format!("proc/{pid}/stat"))).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
    }

    /// Does the process use no more than it may? What it uses is counted while its threads go first.
    fn is_within(&mut self, pid: u32, now: Instant, outcome: &mut Outcome) -> bool {
        let ran_ns = self.ran_ns(pid);
        let begin = |ran_ns| Used { since: now, ran_ns, back_until: None };
        let Some(used) = self.used.get_mut(&pid) else {
            self.used.insert(pid, begin(ran_ns));
            return true;
        };
        if used.back_until.is_some_and(|until| now < until) {
            return false;
        }
        let time = now.saturating_duration_since(used.since);
        if used.back_until.is_none() && time < WINDOW {
            return true;
        }
        let most =
            ran_ns.iter().map(|(tid, ran)| ran.saturating_sub(*used.ran_ns.get(tid).unwrap_or(ran))).max();
        let percent = most.unwrap_or(0) * 100 / (time.as_nanos() as u64).max(1);
        let was_back = used.back_until.is_some();
        *used = begin(ran_ns);
        if percent <= MOST || was_back {
            return true;
        }
        used.back_until = Some(now + BACK);
        outcome.greedy.insert(pid, percent);
        false
    }

    /// How long each thread has run.
    fn ran_ns(&self, pid: u32) -> BTreeMap<u32, u64> {
        let ran = |(tid, folder): (u32, PathBuf)| {
            let text = fs::read_to_string(folder.join("schedstat")).ok()?;
            Some((tid, text.split_whitespace().next()?.parse().ok()?))
        };
        self.threads(pid).into_iter().filter_map(ran).collect()
    }
}

/// Gives a group real-time, unless it has some or has gone; the less, the more groups above it were given theirs. Where nothing is left to
/// give, the threads that it is for tell.
fn share(file: &Path, above: usize) {
    let has_none = fs::read_to_string(file).is_ok_and(|now| now.trim() == "0");
    if has_none {
        let _ = GROUP_US[above.min(GROUP_US.len() - 1)..].iter().any(|us| fs::write(file, us).is_ok());
    }
}

#[cfg(test)]
mod tests;
