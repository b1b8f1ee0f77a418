//! Processes and their threads in `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The scheduler's counters of a thread since it began (`schedstat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedstat {
    /// Time that the thread ran, in nanoseconds.
    pub(crate) ran_ns: u64,
    /// Time that it was ready to run and waited for a pCPU, in nanoseconds.
    pub(crate) waited_ns: u64,
    /// Number of times that it ran.
    pub(crate) times: u64,
}

/// Returns the folders of processes in `/proc`, or of threads in `/proc/PID/task`, by number.
pub(crate) fn numbered(folder: &Path) -> BTreeMap<u32, PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))).collect()
}

/// Reads the scheduler's counters in the folder of a thread, unless the thread has ended.
pub(crate) fn schedstat(thread: &Path) -> Option<Schedstat> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some(Schedstat { ran_ns: words.next()??, waited_ns: words.next()??, times: words.next()?? })
}

/// Reads in the folder of a process when it began, in clock ticks since the boot.
pub(crate) fn started(process: &Path) -> Option<u64> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // Field 22 of the file. The name before it is in parentheses and may hold any character.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Memory of a process in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory of the host that the process has, huge pages included.
    pub resident: u64,
    /// Memory of the process that is swapped out.
    pub swapped: u64,
}

/// Bytes that a process has moved to and from disks since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disk {
    /// Bytes read. What the page cache had is not among them.
    pub read: u64,
    /// Bytes written, also those that are still in the page cache.
    pub written: u64,
}

/// Reads in the folder of a process which memory it has.
pub(crate) fn memory(process: &Path) -> Option<Memory> {
    let text = fs::read_to_string(process.join("status")).ok()?;
    // The kernel counts huge pages apart.
    let bytes = |name| Some(value(&text, name)?.saturating_mul(1024));
    let resident = bytes("VmRSS:")?.saturating_add(bytes("HugetlbPages:").unwrap_or(0));
    Some(Memory { resident, swapped: bytes("VmSwap:").unwrap_or(0) })
}

/// Reads in the folder of a process what it has moved to and from disks. That takes the permission
/// to trace the process.
pub(crate) fn disk(process: &Path) -> Option<Disk> {
    let text = fs::read_to_string(process.join("io")).ok()?;
    Some(Disk { read: value(&text, "read_bytes:")?, written: value(&text, "write_bytes:")? })
}

/// Returns the number behind a name at the begin of a line.
pub(crate) fn value(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_disk_are_read_by_name() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!((memory(folder.path()), disk(folder.path())), (None, None));
        let status = "Name:\tVmRSS: 7\nVmRSS:\t    2076 kB\nHugetlbPages:\t  4096 kB\nVmSwap:\t 12 kB\n";
        fs::write(folder.path().join("status"), status).unwrap();
        let io = "rchar: 9\nread_bytes: 8192\nwrite_bytes: 512\ncancelled_write_bytes: 7\n";
        fs::write(folder.path().join("io"), io).unwrap();
        assert_eq!(memory(folder.path()), Some(Memory { resident: 6172 << 10, swapped: 12 << 10 }));
        assert_eq!(disk(folder.path()), Some(Disk { read: 8192, written: 512 }));
        // A process that is ending has no memory any more.
        fs::write(folder.path().join("status"), "Name:\tqemu\n").unwrap();
        assert_eq!(memory(folder.path()), None);
    }
}
