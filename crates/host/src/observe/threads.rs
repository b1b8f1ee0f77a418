//! All threads of the host: how long each ran and waited, and on which pCPU.
//!
//! A reading costs one file per thread, and a second one per thread that ran since the last
//! reading: most threads of a host sleep.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::kernel::affinity;
use crate::kernel::task::{self, Schedstat, Stat};

/// Clock ticks per second of the files in `/proc`: the same on every architecture of Linux that
/// KVM runs on.
pub const TICKS_PER_S: u64 = 100;

/// A thread at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// Its name, as the program has set it. It may hold any character.
    pub name: String,
    /// Index of the vCPU, if its name is that of a vCPU's thread.
    pub vcpu: Option<u32>,
    /// True if it is a kernel thread.
    pub kernel: bool,
    /// The pCPU that it last ran on.
    pub cpu: u32,
    /// Time that it ran since it began, in nanoseconds.
    pub ran_ns: u64,
    /// Time that it was ready to run and waited for a pCPU, in nanoseconds.
    pub waited_ns: u64,
    /// Time that it waited for block devices, in clock ticks ([`TICKS_PER_S`]); 0 unless
    /// [`delays_are_counted`].
    pub block_ticks: u64,
}

/// Reads the threads of a host again and again.
#[derive(Debug)]
pub struct Threads {
    root: PathBuf,
    known: BTreeMap<u32, Known>,
}

/// A thread as it was when it last ran.
#[derive(Debug)]
struct Known {
    pid: u32,
    counted: Schedstat,
    stat: Stat,
}

impl Threads {
    /// Begins to read the threads of the host below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: BTreeMap::new() }
    }

    /// Reads all threads, in the order of their numbers.
    pub fn read(&mut self) -> Vec<Thread> {
        let mut now = BTreeMap::new();
        for (pid, folder) in task::numbered(&self.root.join("proc")) {
            for (tid, folder) in task::numbered(&folder.join("task")) {
                let before = self.known.remove(&tid).filter(|known| known.pid == pid);
                // A thread that has ended meanwhile is left out.
                if let Some(known) = Known::read(pid, &folder, before) {
                    now.insert(tid, known);
                }
            }
        }
        self.known = now;
        self.known.iter().map(|(tid, known)| known.thread(*tid)).collect()
    }
}

impl Known {
    fn read(pid: u32, folder: &Path, before: Option<Self>) -> Option<Self> {
        let counted = task::schedstat(folder)?;
        match before {
            Some(before) if before.counted == counted => Some(before),
            _ => Some(Self { pid, counted, stat: task::stat(folder)? }),
        }
    }

    fn thread(&self, tid: u32) -> Thread {
        let Self { pid, counted, stat } = self;
        Thread {
            pid: *pid,
            tid,
            name: stat.name.clone(),
            vcpu: affinity::vcpu_of(&stat.name),
            kernel: stat.kernel,
            cpu: stat.cpu,
            ran_ns: counted.ran_ns,
            waited_ns: counted.waited_ns,
            block_ticks: stat.block_ticks,
        }
    }
}

/// Returns whether the kernel counts how long threads wait for block devices.
pub fn delays_are_counted(root: &Path) -> bool {
    let setting = std::fs::read_to_string(root.join("proc/sys/kernel/task_delayacct"));
    setting.is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn thread(root: &Path, [pid, tid]: [u32; 2], name: &str, cpu: u32, [ran, waited]: [u64; 2]) {
        let folder = root.join(format!("proc/{pid}/task/{tid}"));
        fs::create_dir_all(&folder).unwrap();
        let rest = vec!["0"; 35].join(" ");
        fs::write(folder.join("stat"), format!("{tid} ({name}) S {rest} {cpu} 0 0 25\n")).unwrap();
        fs::write(folder.join("schedstat"), format!("{ran} {waited} 1\n")).unwrap();
    }

    #[test]
    fn threads_have_their_pcpu_and_their_times() {
        let dir = tempfile::tempdir().unwrap();
        thread(dir.path(), [7, 7], "qemu) (x", 0, [5, 1]);
        thread(dir.path(), [7, 8], "CPU 1/KVM", 3, [100, 50]);
        let mut threads = Threads::new(dir.path());
        let first = threads.read();
        let of = |thread: &Thread| (thread.tid, thread.name.clone(), thread.vcpu, thread.cpu);
        assert_eq!(
            first.iter().map(of).collect::<Vec<_>>(),
            [(7, "qemu) (x".to_owned(), None, 0), (8, "CPU 1/KVM".to_owned(), Some(1), 3)]
        );
        assert_eq!((first[1].ran_ns, first[1].waited_ns, first[1].block_ticks), (100, 50, 25));
        thread(dir.path(), [7, 8], "CPU 1/KVM", 2, [200, 60]);
        assert_eq!(threads.read()[1].cpu, 2);
        // The kernel uses a number again.
        fs::remove_dir_all(dir.path().join("proc/7")).unwrap();
        thread(dir.path(), [9, 8], "cron", 1, [200, 60]);
        let last = threads.read();
        assert_eq!((last.len(), last[0].pid, last[0].name.as_str()), (1, 9, "cron"));
        assert!(!delays_are_counted(dir.path()));
    }
}
