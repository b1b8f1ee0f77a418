//! Processes of this host and their threads, and which of the processes are virtual machines,
//! whoever has started them.
//!
//! This module reads `/proc` and control groups only: neither a machine nor its manager is asked.
//! One reading goes through `/proc` at most once and reads what the caller needs ([`Needs`]). The
//! list of processes stays while the kernel tells of no new one. The identity of a process, the
//! list of its threads and their names are kept between readings, and looked up again only now and
//! then. So are memory, disk traffic and throttled time of a machine while none of its threads
//! runs, which the CPU-time clock of its process tells. Such a machine is the same object in each
//! reading. Files of machines' threads stay open, and so do the folders that have these.
//!
//! Names, command lines and numbers of threads are those of strangers. So a reading is bounded:
//! machines of others beyond [`MOST_MACHINES`] and [`MOST_MACHINE_THREADS`] are left out, and other
//! processes beyond [`MOST_OTHER_THREADS`]. Machines of the caller never are, and of the others
//! those that run for longest come first.

mod folder;
mod groups;
mod identity;
mod looks;
mod threads;
mod usage;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::cached_file::{CachedFile, OpenFileBudget};
use crate::kernel::cgroup::controller::Controller;
use crate::kernel::cpu_clock::{self, CpuClock};
use crate::kernel::shortage::{is_shortage, unless_short};
use crate::kernel::task;

pub use self::threads::{TICKS_PER_S, Thread, Times, Vcpu, delays_are_counted};
pub use crate::kernel::task::{DiskUse, MemoryUse};

use self::folder::TaskFolder;
use self::groups::Groups;
use self::identity::Identity;
use self::looks::{FIRST_LOOKS, LOOKS_PER_MACHINE, LOOKS_PER_PROCESS, is_looked_at, was_due};
use self::threads::{Figures, Threads};
use self::usage::Usage;

/// Most machines of others that are read.
pub const MOST_MACHINES: usize = 1024;
/// Highest value of [`Machine::looks`]. Later readings are not counted, so that a machine that has
/// not changed can be shared.
pub const MOST_LOOKS: u32 = 16;
/// Most threads of machines of others, all together. A machine with more threads than are left is
/// left out as a whole.
pub const MOST_MACHINE_THREADS: usize = 16_384;
/// Most threads of other processes, all together.
pub const MOST_OTHER_THREADS: usize = 65_536;

/// Figures that a reading is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Figures of threads.
    pub threads: Detail,
    /// For how long CPU limits kept machines from running.
    pub throttling: bool,
    /// Memory of machines.
    pub memory: bool,
    /// Disk traffic of machines.
    pub disk: bool,
    /// For how long vCPUs waited for memory from disk: a second file for each vCPU that ran since
    /// the last reading.
    pub paging: bool,
}

/// Figures of threads, from the cheapest to the dearest. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Which threads machines have: a list of a folder for each machine.
    Names,
    /// Times of machines' threads: a file for each thread of a machine that has run, by the
    /// CPU-time clock of its process.
    Times,
    /// Times and pCPUs of all threads of the host: a file for each thread of a process that has
    /// run, by its CPU-time clock, and a second one for each thread that ran since the last
    /// reading.
    Places,
}

impl Needs {
    /// The least that a reading has.
    pub const LEAST: Self =
        Self { threads: Detail::Names, throttling: false, memory: false, disk: false, paging: false };

    /// Returns what serves both needs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            threads: self.threads.max(other.threads),
            throttling: self.throttling || other.throttling,
            memory: self.memory || other.memory,
            disk: self.disk || other.disk,
            paging: self.paging || other.paging,
        }
    }

    /// Returns what is needed of threads.
    const fn of_threads(self) -> Figures {
        Figures { detail: self.threads, paging: self.paging }
    }

    /// Returns whether a reading for these needs serves other ones, too.
    pub fn covers(self, other: Self) -> bool {
        self.and(other) == self
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its process.
    pub pid: u32,
    /// Start of its process, in clock ticks since the boot.
    pub started: u64,
    /// Number of times that it was seen, up to [`MOST_LOOKS`].
    pub looks: u32,
    /// Name by its command line (`-name`), printable and of at most
    /// [`taut_api::printable::MOST_NAME`] characters.
    pub name: Option<Arc<str>>,
    /// UUID by its command line (`-uuid`), in small letters.
    pub uuid: Option<Arc<str>>,
    /// Number of its threads.
    pub threads: usize,
    /// Its vCPUs. They are the threads that QEMU names `CPU 0/KVM` (option `debug-threads=on` of
    /// `-name`, which libvirt and Proxmox set). Without these names the machine has none here, and
    /// all of its time is that of other threads.
    pub vcpus: BTreeMap<u32, Vcpu>,
    /// Times of its other threads, from when they were first read.
    pub others: Times,
    /// Time from when it was first read in which the CPU limits of its control groups kept it from
    /// running, in nanoseconds, summed over all pCPUs. Nothing without the controller `cpu`.
    pub throttled_ns: Option<u64>,
    /// Time from when it was first read that its vCPUs waited for block devices, which are those of
    /// swapped memory, in nanoseconds. Nothing unless [`delays_are_counted`].
    pub paged_ns: Option<u64>,
    /// Memory of its process.
    pub memory: Option<MemoryUse>,
    /// Bytes that its process has moved to and from disks, if the caller may read that.
    pub disk: Option<DiskUse>,
    /// False if descriptors or memory were short in the reading. Figures may be absent then, or
    /// those of an earlier reading.
    pub complete: bool,
}

/// Result of a reading. Figures that nobody needed are absent or zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Machines, in the order of their processes. One that has not changed is shared with the
    /// readings before.
    pub machines: Vec<Arc<Machine>>,
    /// Threads of all processes; none unless their places were needed.
    pub threads: Vec<Thread>,
    /// Number of machines that were left out, because there are too many.
    pub machines_left_out: usize,
    /// Number of other processes whose threads were left out.
    pub others_left_out: usize,
}

/// Reads the processes of a host again and again.
#[derive(Debug)]
pub struct Processes {
    root: PathBuf,
    /// The controller that limits CPU time.
    cpu: Option<Controller>,
    /// Budget for files that stay open.
    files: OpenFileBudget,
    known: BTreeMap<u32, Known>,
    /// The file that tells the newest process or thread.
    newest_file: CachedFile,
    /// The newest process or thread when processes were last listed, if the kernel tells.
    newest: Option<u32>,
    /// Number of readings since then.
    since_list: u32,
    /// Number of readings since a process or thread was last new.
    since_newest: u32,
    /// Number of readings since processes were last looked at.
    since_look: u32,
    /// True if a machine may have other threads than those that were read.
    is_incomplete: bool,
    /// True if the kernel counted delays when processes were last listed.
    are_delays_counted: bool,
    /// Machines in the order in which they are read: those of others last, the oldest first. The
    /// memory serves the next reading.
    by_age: Vec<(bool, u64, u32)>,
    /// True if the numbers in `proc` are those of this process's namespace, so that CPU-time clocks
    /// can be read by them.
    has_clocks: bool,
}

/// A process that was seen before.
#[derive(Debug, Default)]
struct Known {
    /// Its folder of threads.
    tasks: TaskFolder,
    /// Its CPU-time clock, once that was asked for.
    clock: Option<CpuClock>,
    /// Number of readings in which it was there, even if its folder was not looked at.
    looks: u32,
    machine: Option<Identity>,
    /// True if its identity could not be read when that was due, for want of descriptors or memory.
    is_identity_due: bool,
    threads: Threads,
    groups: Groups,
    /// True if its groups are looked up as soon as one of its threads has run.
    are_groups_due: bool,
    usage: Usage,
    /// True if its disk traffic was read before, so that this process may read that.
    had_disk: bool,
    /// The machine at the last reading, and what was needed then.
    last: Option<(Needs, Arc<Machine>)>,
}

/// Number of readings after which processes are listed although the kernel tells of no new one.
const READINGS_PER_LIST: u32 = 16;

impl Processes {
    /// Begins to read the processes of the host below `root`.
    pub fn new(root: &Path) -> Self {
        let cpu = Controller::find(root, None, "cpu");
        Self {
            root: root.to_owned(),
            cpu,
            files: OpenFileBudget::of_this_process(),
            known: BTreeMap::new(),
            newest_file: CachedFile::default(),
            newest: None,
            since_list: 0,
            since_newest: 0,
            since_look: 0,
            is_incomplete: true,
            are_delays_counted: false,
            by_age: Vec::new(),
            has_clocks: cpu_clock::has_numbers_of(&root.join("proc")),
        }
    }

    /// Reads all processes. `is_own` tells which of them are machines of the caller.
    pub fn read(&mut self, needs: Needs, is_own: impl Fn(u32) -> bool) -> Found {
        let proc = self.root.join("proc");
        self.look(&proc, needs.threads == Detail::Places);
        let needs = Needs { paging: needs.paging && self.are_delays_counted, ..needs };
        let mut found = Found::default();
        let with_age =
            |(pid, known): (&u32, &Known)| Some((!is_own(*pid), known.machine.as_ref()?.started, *pid));
        self.by_age.clear();
        self.by_age.extend(self.known.iter().filter_map(with_age));
        self.by_age.sort_unstable();
        found.machines.reserve(self.by_age.len());
        let mut ended = Vec::new();
        let mut budget = Budget { processes: MOST_MACHINES, threads: MOST_MACHINE_THREADS };
        self.is_incomplete = false;
        for &(is_foreign, _, pid) in &self.by_age {
            let Some(known) = self.known.get_mut(&pid) else { continue };
            if is_foreign && !budget.take(known.tasks.count()) {
                known.close_files();
                found.machines_left_out += 1;
                continue;
            }
            let folder = proc.join(pid.to_string());
            known.tasks.keep_open(&folder, &self.files);
            let count = known.tasks.count();
            let cpu_time = known.cpu_time(pid, self.has_clocks && needs.threads >= Detail::Times);
            known.threads.read(&folder, count, needs.of_threads(), cpu_time, &self.files);
            if known.threads.numbers().len() == 0 && known.has_ended(&folder) {
                ended.push(pid);
                continue;
            }
            self.is_incomplete |= !known.has_all_threads();
            let looks = known.looks.saturating_add(self.since_look);
            found.machines.extend(known.machine(pid, &folder, looks, needs, self.cpu.as_ref()));
            if needs.threads == Detail::Places {
                found.threads.extend(known.threads.all(pid));
            }
        }
        for pid in ended {
            self.known.remove(&pid);
        }
        found.machines.sort_unstable_by_key(|machine| machine.pid);
        if needs.threads == Detail::Places {
            self.read_others(&proc, &mut found);
        }
        found
    }

    /// Lists the processes, and looks at each. If none has begun since the last list, the list
    /// stays as it is, unless all are needed. Then only processes that may have become machines are
    /// looked at, and machines that may have other threads than before. If none has begun for a
    /// while, no process is looked at: changes show at the next list.
    fn look(&mut self, proc: &Path, needs_all: bool) {
        // A process may appear a moment after the kernel has told of it, or not be told of at all,
        // if this process is in another namespace of numbers.
        let newest = task::newest(proc, &mut self.newest_file, &self.files);
        self.since_list += 1;
        self.since_newest =
            if newest.is_some() && newest == self.newest { self.since_newest.saturating_add(1) } else { 0 };
        self.since_look += 1;
        let is_due = needs_all || self.since_list >= READINGS_PER_LIST;
        if !is_due && self.since_newest > 0 {
            if self.since_newest > FIRST_LOOKS && !self.is_incomplete {
                return;
            }
            let readings = std::mem::take(&mut self.since_look);
            // No thread has begun either. One may appear a moment after the kernel has told of it.
            let is_settled = self.since_list > 1;
            self.known.retain(|pid, known| {
                let looks = known.looks.saturating_add(readings);
                let may_have_others = !is_settled || !known.has_all_threads();
                let is_due = known.is_identity_due || was_due(looks, readings, known.looks_per_identity());
                if is_due || known.machine.is_some() && may_have_others {
                    return known.look(&proc.join(pid.to_string()), readings);
                }
                known.looks = looks;
                true
            });
            return;
        }
        let listed = task::numbers(proc);
        if listed.as_ref().is_err_and(is_shortage) {
            return;
        }
        (self.newest, self.since_list) = (newest.filter(|_| listed.is_ok()), 0);
        self.are_delays_counted = delays_are_counted(&self.root);
        let readings = std::mem::take(&mut self.since_look);
        let numbers = listed.unwrap_or_default();
        let mut before = std::mem::take(&mut self.known);
        for pid in numbers {
            let mut known = before.remove(&pid).unwrap_or_default();
            if known.look(&proc.join(pid.to_string()), readings) {
                if known.looks == 1 {
                    self.since_newest = 0;
                }
                self.known.insert(pid, known);
            }
        }
    }

    /// Reads the threads of processes that are no machines.
    fn read_others(&mut self, proc: &Path, found: &mut Found) {
        let mut budget = Budget { processes: usize::MAX, threads: MOST_OTHER_THREADS };
        for (pid, known) in self.known.iter_mut().filter(|(_, known)| known.machine.is_none()) {
            if budget.take(known.tasks.count()) {
                let figures = Figures { detail: Detail::Places, paging: false };
                let (count, cpu_time) = (known.tasks.count(), known.cpu_time(*pid, self.has_clocks));
                known.threads.read(&proc.join(pid.to_string()), count, figures, cpu_time, &self.files);
                found.threads.extend(known.threads.all(*pid));
            } else {
                found.others_left_out += 1;
            }
        }
    }
}

/// Numbers of processes and threads that may still be read.
struct Budget {
    processes: usize,
    threads: usize,
}

impl Budget {
    /// Takes a process with so many threads, if that is known, off the budget. Returns false, and
    /// takes nothing, if there is too little left.
    fn take(&mut self, threads: Option<usize>) -> bool {
        let threads = self.threads.checked_sub(threads.unwrap_or(1));
        let left = self.processes.checked_sub(1).zip(threads);
        if let Some((processes, threads)) = left {
            (self.processes, self.threads) = (processes, threads);
        }
        left.is_some()
    }
}

impl Known {
    /// Looks at the process with this folder, which may be another one than before, the first time
    /// in so many readings. Returns false if it has ended.
    fn look(&mut self, folder: &Path, readings: u32) -> bool {
        let before = self.tasks.inode();
        let inode = match self.tasks.look(folder) {
            Ok(inode) => inode,
            // The process may still be there.
            Err(error) => return is_shortage(&error) && before > 0,
        };
        let Ok(is_same) = self.is_same(before, inode, folder) else {
            self.tasks.set_inode_back(before);
            return true;
        };
        if !is_same {
            *self = Self { tasks: std::mem::take(&mut self.tasks), ..Self::default() };
        }
        // A process that is new has begun in the last of these readings.
        let readings = if self.looks == 0 { 1 } else { readings };
        self.looks = self.looks.saturating_add(readings);
        self.is_identity_due |= was_due(self.looks, readings, self.looks_per_identity());
        // The identity that is known stays while there is a shortage.
        if self.is_identity_due
            && let Ok(machine) = Identity::of(folder)
        {
            self.is_identity_due = false;
            let before = std::mem::replace(&mut self.machine, machine);
            if self.machine != before {
                self.last = None;
            }
            if before.is_some() && self.machine.is_none() {
                self.close_files();
            }
        }
        true
    }

    /// Returns the number of readings after which the identity of the process is looked at again.
    const fn looks_per_identity(&self) -> u32 {
        if self.machine.is_some() { LOOKS_PER_MACHINE } else { LOOKS_PER_PROCESS }
    }

    /// Returns whether the process with this number is still the same, by the inodes of its folder
    /// of threads before and now. The kernel may give a process another inode when memory is
    /// scarce. Fails only for want of descriptors or memory.
    fn is_same(&self, before: u64, inode: u64, folder: &Path) -> io::Result<bool> {
        let Some(machine) = self.machine.as_ref().filter(|_| before != inode) else {
            return Ok(before == inode);
        };
        Ok(unless_short(task::started(folder))? == Some(machine.started))
    }

    /// Returns how long its threads have run, if the kernel tells. `has_clock` tells whether the
    /// kernel may be asked.
    fn cpu_time(&mut self, pid: u32, has_clock: bool) -> Option<Duration> {
        if !has_clock {
            return None;
        }
        self.clock = self.clock.or_else(|| CpuClock::of(pid));
        self.clock?.time()
    }

    /// Returns whether the threads that were last read are as many as there were at the last look.
    fn has_all_threads(&self) -> bool {
        self.tasks.count() == Some(self.threads.numbers().len())
    }

    /// Returns whether the process with this folder has ended. Another one may have its number.
    fn has_ended(&mut self, folder: &Path) -> bool {
        let before = self.tasks.inode();
        match self.tasks.look(folder) {
            Ok(inode) => inode != before,
            Err(error) => !is_shortage(&error),
        }
    }

    /// Closes the files that are open for the next reading.
    fn close_files(&mut self) {
        self.tasks.close();
        self.threads.close_files();
    }

    /// Returns the machine, whose threads were read, and which was seen so many times.
    fn machine(
        &mut self,
        pid: u32,
        folder: &Path,
        looks: u32,
        needs: Needs,
        cpu: Option<&Controller>,
    ) -> Option<Arc<Machine>> {
        let is_due = is_looked_at(looks, LOOKS_PER_MACHINE) || groups::is_due(looks, pid);
        let looks = looks.min(MOST_LOOKS);
        let may_have_run = self.threads.may_have_run();
        // The kernel takes memory from machines that do not run as well.
        if is_due || may_have_run {
            self.usage.outdate_memory_and_disk();
        }
        self.are_groups_due |= is_due;
        let is_same = |(of, last): &(Needs, Arc<Machine>)| *of == needs && last.looks == looks;
        if !(is_due || may_have_run || self.threads.had_shortage())
            && let Some((_, last)) = self.last.as_ref().filter(|last| is_same(last))
        {
            return Some(last.clone());
        }
        let Identity { started, name, uuid } = self.machine.clone()?;
        // A machine that wants no CPU time is not throttled. So groups matter only once it has run.
        if may_have_run {
            self.usage.outdate_throttled();
        }
        let look_up = needs.throttling && may_have_run && std::mem::take(&mut self.are_groups_due);
        let (groups, threads) = (&mut self.groups, &self.threads);
        let read_groups = || {
            let cpu = cpu.ok_or(io::ErrorKind::NotFound)?;
            groups.read(cpu, folder, threads.numbers(), look_up)
        };
        let throttled_ns = self.usage.throttled_ns.get(needs.throttling, read_groups);
        let memory = self.usage.memory.get(needs.memory, || task::memory(folder));
        let disk = self.usage.disk.get(needs.disk, || task::disk(folder));
        let machine = Arc::new(Machine {
            pid,
            started,
            looks,
            name,
            uuid,
            threads: self.threads.numbers().len(),
            vcpus: self.threads.vcpus(),
            others: self.threads.others(),
            throttled_ns,
            paged_ns: needs.paging.then(|| self.threads.paged_ns()),
            memory,
            disk,
            complete: !(self.threads.had_shortage() || self.usage.had_shortage()),
        });
        // Memory and disk traffic that could not be read are read again in the next reading.
        self.had_disk |= machine.disk.is_some();
        let has_lost = !machine.complete
            || needs.memory && machine.memory.is_none()
            || needs.disk && machine.disk.is_none() && self.had_disk;
        self.last = (!has_lost).then(|| (needs, machine.clone()));
        Some(machine)
    }
}

#[cfg(test)]
mod tests;
