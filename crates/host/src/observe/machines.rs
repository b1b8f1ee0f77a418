//! Virtual machines of this host, whoever has started them, and the times of their vCPUs.
//!
//! This module reads `/proc` only: neither a machine nor its manager is asked. A machine is a
//! process whose program is QEMU or a microguest. Its vCPUs are the threads that QEMU names
//! `CPU 0/KVM` (option `debug-threads=on` of `-name`, which libvirt and Proxmox set). Without these
//! names the machine has no vCPUs here, and all of its time is that of other threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::kernel::affinity;
use crate::kernel::cgroup::controller::Controller;
use crate::kernel::cgroup::throttling;
use crate::kernel::task::{self, Schedstat};
use crate::observe::threads::{TICKS_PER_S, delays_are_counted};

pub use crate::kernel::task::{DiskUse, MemoryUse};

/// Times of threads since they began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Time that they ran, in nanoseconds.
    pub ran_ns: u64,
    /// Time that they were ready to run and waited for a pCPU, in nanoseconds.
    pub waited_ns: u64,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its process.
    pub pid: u32,
    /// Start of its process, in clock ticks since the boot.
    pub started: u64,
    /// Number of times that it was read.
    pub looks: u32,
    /// Name by its command line (`-name`).
    pub name: Option<String>,
    /// UUID by its command line (`-uuid`).
    pub uuid: Option<String>,
    /// Times of its vCPUs.
    pub vcpus: BTreeMap<u32, Times>,
    /// Times of its other threads, from when it was first seen.
    pub others: Times,
    /// Time from when it was first seen in which the CPU limits of its control groups kept it from
    /// running, in nanoseconds, summed over all pCPUs. Nothing without the controller `cpu`.
    pub throttled_ns: Option<u64>,
    /// Time from when it was first seen that its vCPUs waited for block devices, which are those of
    /// swapped memory, in nanoseconds. Nothing unless the kernel counts such delays.
    pub paged_ns: Option<u64>,
    /// Memory of its process.
    pub memory: Option<MemoryUse>,
    /// Bytes that its process has moved to and from disks, if the daemon may read that.
    pub disk: Option<DiskUse>,
}

/// Reads the machines of a host again and again.
#[derive(Debug)]
pub struct Machines {
    root: PathBuf,
    /// The controller that limits CPU time.
    cpu: Option<Controller>,
    known: BTreeMap<u32, Known>,
}

/// A process that was seen before.
#[derive(Debug, Default)]
struct Known {
    /// Number of times that it was seen.
    looks: u32,
    machine: Option<Identity>,
    threads: BTreeMap<u32, Thread>,
    others: Times,
    /// Time that its vCPUs waited for block devices, in clock ticks.
    paged_ticks: u64,
    /// Its groups, and for how long each of them had been kept from running, in nanoseconds.
    groups: BTreeMap<PathBuf, u64>,
    throttled_ns: u64,
}

/// Identity of a machine, by its process and its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    started: u64,
    name: Option<String>,
    uuid: Option<String>,
}

/// A thread of a machine.
#[derive(Debug, Clone, Copy)]
struct Thread {
    /// Number of times that it was seen.
    looks: u32,
    vcpu: Option<u32>,
    last: Times,
    /// Time that a vCPU had waited for block devices, in clock ticks, when that was last read.
    block_ticks: Option<u64>,
}

/// Number of readings after which the groups of a machine are looked up again.
const LOOKS_PER_GROUPS: u32 = 16;

/// Returns whether something is looked at again. A process runs its program, and a thread gets its
/// name, mostly soon after it has begun.
const fn is_looked_at(looks: u32) -> bool {
    looks.is_power_of_two() || looks.is_multiple_of(64)
}

impl Machines {
    /// Begins to read the machines of the host below `root`.
    pub fn new(root: &Path) -> Self {
        let cpu = Controller::find(root, None, "cpu");
        Self { root: root.to_owned(), cpu, known: BTreeMap::new() }
    }

    /// Reads all machines, in the order of their processes.
    pub fn read(&mut self) -> Vec<Machine> {
        let processes = task::numbered(&self.root.join("proc"));
        let delays_are_counted = delays_are_counted(&self.root);
        self.known.retain(|pid, _| processes.contains_key(pid));
        let mut machines = Vec::new();
        for (pid, folder) in processes {
            let known = self.known.entry(pid).or_default();
            known.looks += 1;
            if is_looked_at(known.looks) {
                known.machine = identity(&folder);
            }
            let Some(Identity { started, name, uuid }) = known.machine.clone() else { continue };
            let vcpus = known.read_threads(&folder, delays_are_counted);
            let throttled_ns = self.cpu.as_ref().map(|cpu| known.read_groups(cpu, &folder));
            machines.push(Machine {
                pid,
                started,
                looks: known.looks,
                name,
                uuid,
                vcpus,
                others: known.others,
                throttled_ns,
                paged_ns: delays_are_counted.then(|| known.paged_ticks * (1_000_000_000 / TICKS_PER_S)),
                memory: task::memory(&folder),
                disk: task::disk(&folder),
            });
        }
        machines
    }
}

impl Known {
    /// Reads the times of all threads, also for how long vCPUs waited for block devices if that is
    /// counted. Returns the times of the vCPUs.
    fn read_threads(&mut self, process: &Path, delays_are_counted: bool) -> BTreeMap<u32, Times> {
        let tasks = task::numbered(&process.join("task"));
        let is_new_machine = self.threads.is_empty();
        self.threads.retain(|tid, _| tasks.contains_key(tid));
        let mut vcpus = BTreeMap::new();
        for (tid, folder) in tasks {
            let Some(now) = times(&folder) else { continue };
            // A machine that was there before has the past of its threads behind it.
            let last = if is_new_machine { now } else { Times::default() };
            let thread =
                self.threads.entry(tid).or_insert(Thread { looks: 0, vcpu: None, last, block_ticks: None });
            thread.looks += 1;
            if is_looked_at(thread.looks) {
                let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
                thread.vcpu = affinity::vcpu_of(name.trim());
            }
            if let Some(vcpu) = thread.vcpu {
                vcpus.insert(vcpu, now);
                // A thread whose wait has ended has run since then.
                let is_due = now != thread.last || thread.block_ticks.is_none();
                if delays_are_counted
                    && is_due
                    && let Some(stat) = task::stat(&folder)
                {
                    let past = thread.block_ticks.replace(stat.block_ticks).unwrap_or(stat.block_ticks);
                    self.paged_ticks += stat.block_ticks.saturating_sub(past);
                }
            } else {
                self.others.ran_ns += now.ran_ns.saturating_sub(thread.last.ran_ns);
                self.others.waited_ns += now.waited_ns.saturating_sub(thread.last.waited_ns);
            }
            thread.last = now;
        }
        vcpus
    }
}

impl Known {
    /// Adds for how long the groups of the process and of its threads were kept from running since
    /// the last time. Returns the sum.
    fn read_groups(&mut self, cpu: &Controller, process: &Path) -> u64 {
        if is_looked_at(self.looks) || self.looks.is_multiple_of(LOOKS_PER_GROUPS) {
            let threads = self.threads.keys().map(|tid| process.join(format!("task/{tid}/cgroup")));
            let listed = threads.chain([process.join("cgroup")]);
            let found: BTreeSet<_> = listed.flat_map(|listed| throttling::limiting(cpu, &listed)).collect();
            self.groups.retain(|group, _| found.contains(group));
            for group in found {
                // A group that the machine enters has the past of others behind it.
                let past = throttling::throttled_ns(&group).unwrap_or(0);
                self.groups.entry(group).or_insert(past);
            }
        }
        for (group, last) in &mut self.groups {
            let Some(now) = throttling::throttled_ns(group) else { continue };
            self.throttled_ns += now.saturating_sub(*last);
            *last = now;
        }
        self.throttled_ns
    }
}

/// Returns the times of a thread, unless it has ended.
fn times(thread: &Path) -> Option<Times> {
    task::schedstat(thread).map(|Schedstat { ran_ns, waited_ns, .. }| Times { ran_ns, waited_ns })
}

/// Returns the identity of a process, if its program runs a machine.
fn identity(process: &Path) -> Option<Identity> {
    let program = fs::read_link(process.join("exe")).ok()?;
    let program = program.file_name()?.to_str()?;
    // An upgrade of the package replaces the file of a machine that runs on.
    let program = program.strip_suffix(" (deleted)").unwrap_or(program);
    let is_machine =
        program.starts_with("qemu-system-") || ["kvm", "qemu-kvm", "taut-micro"].contains(&program);
    if !is_machine {
        return None;
    }
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let after = |option: &str| {
        let at =
            words.iter().position(|word| word.trim_start_matches('-') == option && word.starts_with('-'))?;
        words.get(at + 1).map(ToString::to_string)
    };
    let name = after("name").and_then(|value| {
        let part = value.split(',').find_map(|part| part.strip_prefix("guest="));
        let first = value.split(',').next().filter(|first| !first.contains('='));
        part.or(first).map(str::to_owned)
    });
    Some(Identity {
        started: task::started(process).unwrap_or(0),
        name: name.filter(|name| !name.is_empty()),
        uuid: after("uuid"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Host(tempfile::TempDir);

    impl Host {
        fn process(&self, pid: u32, program: &str, line: &[&str]) {
            let folder = self.0.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&folder).unwrap();
            let _ = fs::remove_file(folder.join("exe"));
            symlink(program, folder.join("exe")).unwrap();
            fs::write(folder.join("cmdline"), line.join("\0")).unwrap();
            let rest = vec!["7"; 18].join(" ");
            fs::write(folder.join("stat"), format!("{pid} (q) x) S {rest} {pid}99 5\n")).unwrap();
        }

        fn thread(&self, pid: u32, tid: u32, name: &str, [ran, waited]: [u64; 2]) {
            let folder = self.0.path().join(format!("proc/{pid}/task/{tid}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("schedstat"), format!("{ran} {waited} 7\n")).unwrap();
        }

        fn end_of_thread(&self, pid: u32, tid: u32) {
            fs::remove_dir_all(self.0.path().join(format!("proc/{pid}/task/{tid}"))).unwrap();
        }
    }

    fn times([ran_ns, waited_ns]: [u64; 2]) -> Times {
        Times { ran_ns, waited_ns }
    }

    #[test]
    fn machines_are_found_by_their_program_and_named_by_their_command_line() {
        let host = Host(tempfile::tempdir().unwrap());
        let libvirts = ["qemu", "-name", "guest=db,debug-threads=on", "-uuid", "6ba7", "-m", "1G"];
        host.process(10, "/usr/bin/qemu-system-x86_64", &libvirts);
        host.process(11, "/usr/bin/kvm", &["kvm", "--name", "web,process=x"]);
        host.process(12, "/usr/libexec/qemu-kvm (deleted)", &["qemu", "-m", "1G"]);
        host.process(13, "/usr/sbin/libvirtd", &["libvirtd", "-name", "x"]);
        let mut machines = Machines::new(host.0.path());
        let found = machines.read();
        let all: Vec<_> =
            found.iter().map(|found| (found.pid, found.name.as_deref(), found.uuid.as_deref())).collect();
        assert_eq!(all, [(10, Some("db"), Some("6ba7")), (11, Some("web"), None), (12, None, None)]);
        assert_eq!((found[0].started, found[0].looks), (1099, 1));
        assert_eq!((found[0].throttled_ns, found[0].memory, found[0].disk), (None, None, None));
        // libvirt's child runs QEMU a bit later.
        host.process(13, "/usr/bin/qemu-system-x86_64", &["qemu", "-name", "late"]);
        assert_eq!(machines.read().len(), 4);
        fs::remove_dir_all(host.0.path().join("proc/10")).unwrap();
        assert_eq!(machines.read().len(), 3);
    }

    #[test]
    fn times_of_vcpus_are_the_kernels_and_those_of_other_threads_add_up() {
        let host = Host(tempfile::tempdir().unwrap());
        host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu"]);
        host.thread(10, 10, "qemu-system-x86", [500, 5]);
        host.thread(10, 11, "CPU 0/KVM", [1000, 100]);
        host.thread(10, 12, "qemu-system-x86", [0, 0]);
        let mut machines = Machines::new(host.0.path());
        let first = machines.read().remove(0);
        assert_eq!(first.vcpus, BTreeMap::from([(0, times([1000, 100]))]));
        assert_eq!(first.others, Times::default(), "what was before is not known to be anybody's");
        host.thread(10, 10, "qemu-system-x86", [600, 6]);
        host.thread(10, 11, "CPU 0/KVM", [3000, 300]);
        // The second vCPU has got its name, and a thread for I/O has come.
        host.thread(10, 12, "CPU 1/KVM", [70, 7]);
        host.thread(10, 13, "worker", [30, 3]);
        let second = machines.read().remove(0);
        assert_eq!(second.vcpus, BTreeMap::from([(0, times([3000, 300])), (1, times([70, 7]))]));
        assert_eq!(second.others, times([130, 4]));
        host.end_of_thread(10, 13);
        host.thread(10, 10, "qemu-system-x86", [601, 6]);
        assert_eq!(machines.read().remove(0).others, times([131, 4]), "it does not go back");
    }

    #[test]
    fn vcpus_wait_for_memory_from_when_they_are_first_seen() {
        let host = Host(tempfile::tempdir().unwrap());
        let wait = |ran: u64, ticks: u64| {
            host.thread(10, 11, "CPU 0/KVM", [ran, 0]);
            let rest = vec!["0"; 35].join(" ");
            let stat = format!("11 (CPU 0/KVM) S {rest} 0 0 0 {ticks}\n");
            fs::write(host.0.path().join("proc/10/task/11/stat"), stat).unwrap();
        };
        host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu"]);
        wait(1000, 500);
        let mut machines = Machines::new(host.0.path());
        let mut read = || machines.read().remove(0).paged_ns;
        assert_eq!(read(), None, "the kernel does not count it");
        let sysctl = host.0.path().join("proc/sys/kernel/task_delayacct");
        fs::create_dir_all(sysctl.parent().unwrap()).unwrap();
        fs::write(sysctl, "1\n").unwrap();
        assert_eq!(read(), Some(0), "what was before is not known");
        wait(2000, 525);
        assert_eq!(read(), Some(250_000_000));
        wait(2000, 550);
        assert_eq!(read(), Some(250_000_000), "a vCPU that has not run still waits");
        wait(3000, 575);
        assert_eq!(read(), Some(750_000_000));
    }

    #[test]
    fn throttled_time_is_that_of_the_groups_while_the_machine_is_in_them() {
        let host = Host(tempfile::tempdir().unwrap());
        let cpu = host.0.path().join("sys/fs/cgroup/cpu");
        fs::create_dir_all(cpu.join("vm/inner")).unwrap();
        fs::create_dir_all(cpu.join("other")).unwrap();
        fs::write(cpu.join("cpu.shares"), "1024").unwrap();
        let throttle = |group: &str, ns: u64| {
            fs::write(cpu.join(group).join("cpu.stat"), format!("throttled_time {ns}\n")).unwrap();
        };
        let enter = |group: &str| {
            fs::write(host.0.path().join("proc/10/cgroup"), format!("1:cpu:/{group}\n")).unwrap();
        };
        host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu"]);
        enter("vm/inner");
        throttle("vm", 1000);
        throttle("vm/inner", 70);
        throttle("other", 5_000_000);
        let mut machines = Machines::new(host.0.path());
        let mut read = || machines.read().remove(0).throttled_ns;
        assert_eq!(read(), Some(0));
        throttle("vm", 1200);
        throttle("vm/inner", 75);
        assert_eq!(read(), Some(205));
        enter("other");
        for _ in 0..LOOKS_PER_GROUPS {
            read();
        }
        throttle("other", 5_000_001);
        assert_eq!(read(), Some(206), "the past of a group is not the machine's");
    }
}
