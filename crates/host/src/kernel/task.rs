//! Processes and their threads in `/proc`.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use super::cached_file::{CachedFile, OpenFileBudget};

/// Reads a file in one call, or its begin if it is longer than the buffer. The kernel writes the
/// content of these files anew for each reader, so that a second call would only see the end.
fn content<'a>(path: &Path, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    try_content(path, buffer).ok()
}

fn try_content<'a>(path: &Path, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let len = File::open(path)?.read(buffer)?;
    Ok(&buffer[..len])
}

/// Returns the number of the newest process or thread below `proc`, if the kernel tells. While it
/// stays the same, hardly anything has begun. `file` is for this and for later calls.
pub(crate) fn newest(proc: &Path, file: &mut CachedFile, files: &OpenFileBudget) -> Option<u32> {
    let mut buffer = [0; LINE];
    let Ok(content) = file.read(|| proc.join("loadavg"), &mut buffer, files) else {
        // The next call opens it again.
        *file = CachedFile::default();
        return None;
    };
    std::str::from_utf8(content).ok()?.split_whitespace().next_back()?.parse().ok()
}

/// Most bytes of a file that has a line of numbers.
pub(crate) const LINE: usize = 1024;
/// Most bytes of `status`. A process of a user with very many groups has a longer one.
const STATUS: usize = 16 << 10;

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

/// Fields of a thread's `stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: String,
    /// True if it is a kernel thread.
    pub(crate) kernel: bool,
    /// The pCPU that it last ran on.
    pub(crate) cpu: u32,
    /// Time that it waited for block devices, in clock ticks; 0 unless the kernel accounts for
    /// delays (`kernel.task_delayacct`).
    pub(crate) block_ticks: u64,
}

/// `PF_KTHREAD`, a flag of kernel threads.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Reads `stat` in the folder of a thread, unless the thread has ended.
pub(crate) fn stat(thread: &Path) -> Option<Stat> {
    let mut buffer = [0; LINE];
    stat_of(content(&thread.join("stat"), &mut buffer)?)
}

/// Parses `stat`.
pub(crate) fn stat_of(content: &[u8]) -> Option<Stat> {
    // A name need not be UTF-8.
    let text = String::from_utf8_lossy(content);
    // The name is in parentheses and may itself hold parentheses.
    let (head, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Fields are numbered from 1; the first two are cut off.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        name: head.split_once('(')?.1.to_owned(),
        kernel: field(9)? & KERNEL_THREAD != 0,
        cpu: field(39)?.try_into().ok()?,
        block_ticks: field(42).unwrap_or(0),
    })
}

/// Reads the name in the folder of a thread.
pub(crate) fn name(thread: &Path) -> io::Result<String> {
    let mut buffer = [0; LINE];
    let name = String::from_utf8_lossy(try_content(&thread.join("comm"), &mut buffer)?);
    Ok(name.trim_end_matches('\n').to_owned())
}

/// Returns the numbers of processes in `/proc`, or of threads in `/proc/PID/task`, in their order.
pub(crate) fn numbers(folder: &Path) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(folder)?.flatten();
    let mut numbers: Vec<_> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads the scheduler's counters in the folder of a thread, unless the thread has ended.
pub(crate) fn schedstat(thread: &Path) -> Option<Schedstat> {
    let mut buffer = [0; LINE];
    schedstat_of(content(&thread.join("schedstat"), &mut buffer)?)
}

/// Parses `schedstat`.
pub(crate) fn schedstat_of(content: &[u8]) -> Option<Schedstat> {
    let text = std::str::from_utf8(content).ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some(Schedstat { ran_ns: words.next()??, waited_ns: words.next()??, times: words.next()?? })
}

/// Reads in the folder of a process when it began, in clock ticks since the boot.
pub(crate) fn started(process: &Path) -> io::Result<u64> {
    let mut buffer = [0; LINE];
    let stat = String::from_utf8_lossy(try_content(&process.join("stat"), &mut buffer)?);
    // Field 22 of the file. The name before it is in parentheses and may hold any character.
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    field.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Memory of a process in bytes. A part that the kernel does not tell is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Memory of the host that the process has, huge pages included.
    pub resident: u64,
    /// The part of it that is shared with other processes, as a guest's memory is with the fabric.
    pub shared: u64,
    /// The part of it that is huge pages of hugetlbfs.
    pub huge: u64,
    /// Memory that cannot be swapped.
    pub locked: u64,
    /// Memory of the process that is swapped out; that of shared memory is not in it.
    pub swapped: u64,
}

/// Bytes that a process has moved to and from disks since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes read. What the page cache had is not among them.
    pub read: u64,
    /// Bytes written, also those that are still in the page cache.
    pub written: u64,
    /// System calls that read, also from sockets and event descriptors.
    pub reads: u64,
    /// System calls that write.
    pub writes: u64,
}

/// Reads in the folder of a process which memory it has.
pub(crate) fn memory(process: &Path) -> io::Result<MemoryUse> {
    let mut buffer = [0; STATUS];
    let text = String::from_utf8_lossy(try_content(&process.join("status"), &mut buffer)?);
    memory_of(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn memory_of(text: &str) -> Option<MemoryUse> {
    let known = |name| Some(value(text, name)?.saturating_mul(1024));
    let bytes = |name| known(name).unwrap_or(0);
    let huge = bytes("HugetlbPages:");
    Some(MemoryUse {
        // The kernel counts huge pages apart.
        resident: known("VmRSS:")?.saturating_add(huge),
        shared: bytes("RssFile:").saturating_add(bytes("RssShmem:")),
        huge,
        locked: bytes("VmLck:"),
        swapped: bytes("VmSwap:"),
    })
}

/// Reads in the folder of a process what it has moved to and from disks. That takes the permission
/// to trace the process.
pub(crate) fn disk(process: &Path) -> io::Result<DiskUse> {
    let mut buffer = [0; LINE];
    let text = String::from_utf8_lossy(try_content(&process.join("io"), &mut buffer)?);
    disk_of(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn disk_of(text: &str) -> Option<DiskUse> {
    let calls = |name| value(text, name).unwrap_or(0);
    Some(DiskUse {
        read: value(text, "read_bytes:")?,
        written: value(text, "write_bytes:")?,
        reads: calls("syscr:"),
        writes: calls("syscw:"),
    })
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
        assert_eq!((memory(folder.path()).ok(), disk(folder.path()).ok()), (None, None));
        let status = "Name:\tVmRSS: 7\nVmLck:\t 8 kB\nVmRSS:\t    2076 kB\nRssFile:\t 20 kB\n\
                      RssShmem:\t 30 kB\nHugetlbPages:\t  4096 kB\nVmSwap:\t 12 kB\n";
        fs::write(folder.path().join("status"), status).unwrap();
        let io = "rchar: 9\nsyscr: 3\nsyscw: 4\nread_bytes: 8192\nwrite_bytes: 512\n\
                  cancelled_write_bytes: 7\n";
        fs::write(folder.path().join("io"), io).unwrap();
        let expected = MemoryUse {
            resident: 6172 << 10,
            shared: 50 << 10,
            huge: 4096 << 10,
            locked: 8 << 10,
            swapped: 12 << 10,
        };
        assert_eq!(memory(folder.path()).unwrap(), expected);
        let expected = DiskUse { read: 8192, written: 512, reads: 3, writes: 4 };
        assert_eq!(disk(folder.path()).unwrap(), expected);
        // A process that is ending has no memory any more.
        fs::write(folder.path().join("status"), "Name:\tqemu\n").unwrap();
        assert_eq!(memory(folder.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
