//! Threads of one process: how long each ran and waited, and on which pCPU.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use taut_api::printable::printable;

use super::Detail;
use super::looks::{LOOKS_PER_MACHINE, is_looked_at};
use crate::kernel::affinity;
use crate::kernel::cached_file::{CachedFile, OpenFileBudget};
use crate::kernel::shortage::is_shortage;
use crate::kernel::task::{self, Schedstat, Stat};

/// Clock ticks per second of the files in `/proc`: the same on every architecture of Linux that
/// KVM runs on.
pub const TICKS_PER_S: u64 = 100;
/// Most characters of a thread's name. Programs may set 15 bytes, and the kernel some more.
const MOST_THREAD_NAME: usize = 64;

/// Most times in a reading that threads are listed again because one of them has ended. A program
/// may begin and end threads all the time.
const MOST_LISTS: u32 = 3;

/// Times of threads since they began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Time that they ran, in nanoseconds.
    pub ran_ns: u64,
    /// Time that they were ready to run and waited for a pCPU, in nanoseconds.
    pub waited_ns: u64,
}

/// A vCPU of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vcpu {
    /// Its thread.
    pub tid: u32,
    /// Its times; none if nobody needed them.
    pub times: Times,
}

/// A thread at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// Its name, as the program has set it, but printable.
    pub name: String,
    /// Index of the vCPU, if its name is that of a vCPU's thread.
    pub vcpu: Option<u32>,
    /// True if it is a kernel thread.
    pub kernel: bool,
    /// The pCPU that it last ran on.
    pub cpu: u32,
    /// Its times.
    pub times: Times,
    /// Time that it waited for block devices, in clock ticks ([`TICKS_PER_S`]); 0 unless
    /// [`delays_are_counted`].
    pub block_ticks: u64,
}

/// Returns whether the kernel counts how long threads wait for block devices.
pub fn delays_are_counted(root: &Path) -> bool {
    let setting = fs::read_to_string(root.join("proc/sys/kernel/task_delayacct"));
    setting.is_ok_and(|text| text.trim() == "1")
}

/// The threads of a process.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: BTreeMap<u32, Known>,
    /// Times of threads that are no vCPUs, from when they were first read.
    others: Times,
    /// Time that vCPUs waited for block devices, from when that was first read, in clock ticks.
    paged_ticks: u64,
    /// True once a reading had the times of all threads. A thread that appears later has begun
    /// since, so all of its time counts.
    are_timed: bool,
    /// True if the last reading could not list or read some threads for want of descriptors or
    /// memory. Threads may be absent then, and counters may be those of an earlier reading.
    had_shortage: bool,
    /// False if no thread has run between the last two readings.
    may_have_run: bool,
    /// The last reading, if it had all threads.
    last: Option<Last>,
    /// Number of the reading.
    round: u32,
}

/// Figures that a reading has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) detail: Detail,
    /// For how long vCPUs waited for block devices.
    pub(super) paging: bool,
}

/// A reading of all threads.
#[derive(Debug, Clone, Copy)]
struct Last {
    figures: Figures,
    /// How long the threads of the process had run before the reading.
    cpu_time: Duration,
}

/// A thread that was seen before.
#[derive(Debug, Default)]
struct Known {
    /// Number of the reading in which it was last read.
    round: u32,
    /// Number of times that it was read, with its name if that was due.
    looks: u32,
    vcpu: Option<u32>,
    schedstat_file: CachedFile,
    stat_file: CachedFile,
    /// Its counters, once they were read.
    counted: Option<Schedstat>,
    /// Its file `stat` as it was when it had these counters.
    stat: Option<Stat>,
    /// Time that it had waited for block devices, in clock ticks, when that was last read of it as
    /// a vCPU.
    block_ticks: Option<u64>,
}

impl Threads {
    /// Reads the threads of a process that has so many. `cpu_time` is how long they had run before
    /// this call, if that is known.
    ///
    /// If the CPU time is that of the last reading, nothing is read. A thread that wakes up only to
    /// end may not change the CPU time, and then stays until threads are counted again. Threads are
    /// listed only if their number has changed, or if one of them has ended: otherwise there cannot
    /// be a new one.
    pub(super) fn read(
        &mut self,
        process: &Path,
        count: Option<usize>,
        figures: Figures,
        cpu_time: Option<Duration>,
        files: &OpenFileBudget,
    ) {
        let may_have_others = figures.detail == Detail::Names || count != Some(self.known.len());
        let serves = |last: Last| Some(last.cpu_time) == cpu_time && last.figures.cover(figures);
        if !may_have_others && self.last.is_some_and(serves) {
            self.may_have_run = false;
            return;
        }
        let tasks = process.join("task");
        self.round = self.round.wrapping_add(1);
        self.may_have_run = may_have_others;
        self.last = cpu_time.map(|cpu_time| Last { figures, cpu_time });
        self.had_shortage = false;
        if may_have_others {
            self.list(&tasks);
        }
        let mut lists = 0;
        while self.read_each(&tasks, figures, files) {
            if lists == MOST_LISTS {
                self.last = None;
                break;
            }
            lists += 1;
            self.list(&tasks);
        }
        if self.had_shortage {
            self.last = None;
        }
        self.are_timed |= figures.detail >= Detail::Times && !self.had_shortage;
    }

    fn list(&mut self, tasks: &Path) {
        let numbers = match task::numbers(tasks) {
            Err(error) if is_shortage(&error) => {
                self.had_shortage = true;
                return;
            }
            numbers => numbers.unwrap_or_default().into_iter(),
        };
        let mut before = std::mem::take(&mut self.known);
        self.known = numbers.map(|tid| (tid, before.remove(&tid).unwrap_or_default())).collect();
    }

    /// Reads the threads that were not read in this round. Returns whether one of them has ended.
    fn read_each(&mut self, tasks: &Path, figures: Figures, files: &OpenFileBudget) -> bool {
        let Self { known, others, paged_ticks, are_timed, may_have_run, had_shortage, round, .. } = self;
        let before = known.len();
        known.retain(|tid, thread| {
            if thread.round == *round {
                return true;
            }
            thread.round = *round;
            let (times, counted) = (thread.times(), thread.counted);
            let folder = || tasks.join(tid.to_string());
            let is_alive = match thread.read(&folder, figures.detail, files) {
                // Its counters stay as they were.
                Err(error) if is_shortage(&error) => {
                    *had_shortage = true;
                    return true;
                }
                read => read.is_ok(),
            };
            // Kernels without CONFIG_SCHEDSTATS count nothing and report 0.
            let is_counted = thread.counted.is_some_and(|counted| counted.ran_ns > 0);
            *may_have_run |= !is_alive || !is_counted || thread.counted != counted;
            if is_alive && figures.paging && thread.vcpu.is_some() {
                let waited = thread.read_paging(&folder, files);
                *had_shortage |= waited.as_ref().is_err_and(is_shortage);
                *paged_ticks += waited.unwrap_or(0);
            }
            // The first reading that has all threads of a process only remembers their counters.
            if is_alive && thread.vcpu.is_none() && (times.is_some() || *are_timed) {
                let (now, before) = (thread.times().unwrap_or_default(), times.unwrap_or_default());
                others.ran_ns += now.ran_ns.saturating_sub(before.ran_ns);
                others.waited_ns += now.waited_ns.saturating_sub(before.waited_ns);
            }
            is_alive
        });
        known.len() < before
    }

    /// Closes the files that are open for the next reading.
    pub(super) fn close_files(&mut self) {
        for thread in self.known.values_mut() {
            thread.schedstat_file = CachedFile::default();
            thread.stat_file = CachedFile::default();
        }
    }

    /// Returns false if no thread has run between the last two readings.
    pub(super) const fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// Returns whether threads or counters of the last reading are absent or old, for want of
    /// descriptors or memory.
    pub(super) const fn had_shortage(&self) -> bool {
        self.had_shortage
    }

    /// Returns the numbers of the threads.
    pub(super) fn numbers(&self) -> impl ExactSizeIterator<Item = u32> {
        self.known.keys().copied()
    }

    /// Returns the threads that are vCPUs.
    pub(super) fn vcpus(&self) -> BTreeMap<u32, Vcpu> {
        let vcpu = |(tid, known): (&u32, &Known)| {
            Some((known.vcpu?, Vcpu { tid: *tid, times: known.times().unwrap_or_default() }))
        };
        self.known.iter().filter_map(vcpu).collect()
    }

    /// Returns the times of threads that are no vCPUs, from when they were first read.
    pub(super) const fn others(&self) -> Times {
        self.others
    }

    /// Returns the time that vCPUs waited for block devices, from when that was first read, in
    /// nanoseconds.
    pub(super) const fn paged_ns(&self) -> u64 {
        self.paged_ticks * (1_000_000_000 / TICKS_PER_S)
    }

    /// Returns the threads whose places were read.
    pub(super) fn all(&self, pid: u32) -> impl Iterator<Item = Thread> {
        self.known.iter().filter_map(move |(tid, known)| {
            let stat = known.stat.as_ref()?;
            Some(Thread {
                pid,
                tid: *tid,
                name: stat.name.clone(),
                vcpu: known.vcpu,
                kernel: stat.kernel,
                cpu: stat.cpu,
                times: known.times()?,
                block_ticks: stat.block_ticks,
            })
        })
    }
}

impl Figures {
    /// Returns whether a reading with these figures has those of `others`, too.
    fn cover(self, others: Self) -> bool {
        self.detail >= others.detail && self.paging >= others.paging
    }
}

impl Known {
    /// Reads the thread. Fails if it has ended, or for want of descriptors or memory. Its counters
    /// stay as they were until its name could be read as well: without the name nobody knows
    /// whether they are those of a vCPU.
    fn read(
        &mut self,
        folder: &impl Fn() -> PathBuf,
        detail: Detail,
        files: &OpenFileBudget,
    ) -> io::Result<()> {
        let mut buffer = [0; task::LINE];
        let mut counted = self.counted;
        if detail >= Detail::Times {
            let read = self.schedstat_file.read(|| folder().join("schedstat"), &mut buffer, files)?;
            counted = Some(task::schedstat_of(read).ok_or(io::ErrorKind::InvalidData)?);
        }
        let (looks, has_run) = (self.looks.saturating_add(1), counted != self.counted);
        if detail == Detail::Places && (has_run || self.stat.is_none()) {
            self.vcpu = affinity::vcpu_of(&self.read_stat(folder, files)?.name);
        } else if detail < Detail::Places && is_looked_at(looks, LOOKS_PER_MACHINE) {
            self.vcpu = affinity::vcpu_of(&task::name(&folder())?);
        }
        if detail < Detail::Places && has_run {
            self.stat = None;
        }
        (self.looks, self.counted) = (looks, counted);
        Ok(())
    }

    /// Reads the file `stat`, and keeps its content until the thread runs again.
    fn read_stat(&mut self, folder: &impl Fn() -> PathBuf, files: &OpenFileBudget) -> io::Result<&Stat> {
        let mut buffer = [0; task::LINE];
        let read = self.stat_file.read(|| folder().join("stat"), &mut buffer, files)?;
        let stat = task::stat_of(read).ok_or(io::ErrorKind::InvalidData)?;
        Ok(self.stat.insert(Stat { name: printable(&stat.name, MOST_THREAD_NAME), ..stat }))
    }

    /// Returns the clock ticks that the thread has waited for block devices since the last call
    /// that did not fail. A thread whose wait has ended has run since then.
    fn read_paging(&mut self, folder: &impl Fn() -> PathBuf, files: &OpenFileBudget) -> io::Result<u64> {
        let known = self.stat.as_ref().map(|stat| stat.block_ticks);
        let now = match known {
            Some(now) => now,
            None => self.read_stat(folder, files)?.block_ticks,
        };
        let past = self.block_ticks.replace(now).unwrap_or(now);
        Ok(now.saturating_sub(past))
    }

    fn times(&self) -> Option<Times> {
        self.counted.map(|Schedstat { ran_ns, waited_ns, .. }| Times { ran_ns, waited_ns })
    }
}
