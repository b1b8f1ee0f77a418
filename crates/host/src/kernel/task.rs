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
