//! Load of the whole host: time of its pCPUs, waits for them, memory and swapping.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::kernel::pages::PAGE;
use crate::kernel::shortage::{is_shortage, unless_short};
use crate::kernel::task;
use crate::kernel::utilisation::{self, CpuTimes, UtilisationError};

/// Milliseconds of a tick in `/proc/stat`. `USER_HZ` is 100 on all machines that taut runs on.
const MS_PER_TICK: u64 = 10;

/// A reading of the host's load. Times and bytes only grow; memory goes up and down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Time in which pCPUs ran something, in ms, summed over all of them since the first reading.
    pub busy_ms: u64,
    /// Time in which pCPUs had nothing to run, in ms.
    pub idle_ms: u64,
    /// Time in which a hypervisor below this host ran something else, in ms.
    pub steal_ms: u64,
    /// Time since the boot in which some task waited for a pCPU, in microseconds (pressure stall
    /// information, `some`). Nothing if the kernel does not tell.
    pub waiting_us: Option<u64>,
    /// Memory, if the kernel tells.
    pub memory: Option<HostMemory>,
    /// Bytes read from swap and written to it since the boot, if the kernel tells.
    pub swap: Option<Swapping>,
}

/// Memory of the host in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// Memory that the kernel manages.
    pub total: u64,
    /// Memory that programs can have without swapping (`MemAvailable`).
    pub available: u64,
    /// Memory set aside for huge pages.
    pub huge: u64,
    /// Swap space.
    pub swap: u64,
    /// Swap space in use.
    pub swap_used: u64,
}

impl HostMemory {
    /// Reads the memory of the host below `root`, if the kernel tells.
    pub fn read(root: &Path) -> Option<Self> {
        Self::of(&fs::read_to_string(root.join("proc/meminfo")).ok()?)
    }

    fn of(text: &str) -> Option<Self> {
        let known = |name| Some(task::value(text, name)?.saturating_mul(1024));
        let bytes = |name| known(name).unwrap_or(0);
        let swap = bytes("SwapTotal:");
        Some(Self {
            total: known("MemTotal:")?,
            available: known("MemAvailable:")?,
            huge: bytes("Hugetlb:"),
            swap,
            swap_used: swap.saturating_sub(bytes("SwapFree:")),
        })
    }

    /// Returns the memory that is not available.
    pub const fn used(&self) -> u64 {
        self.total.saturating_sub(self.available)
    }
}

/// Bytes that were swapped since the boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swapping {
    /// Bytes that were read from swap.
    pub read: u64,
    /// Bytes that were written to swap.
    pub written: u64,
}

/// Reads the load of a host again and again.
#[derive(Debug)]
pub struct Loads {
    root: PathBuf,
    last: Option<CpuTimes>,
    sum: Load,
}

impl Loads {
    /// Begins to read the load of the host below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), last: None, sum: Load::default() }
    }

    /// Reads the load. Figures that the kernel does not tell are absent.
    ///
    /// # Errors
    /// Fails only for want of descriptors or memory: a figure would be absent that the kernel does
    /// tell.
    pub fn read(&mut self) -> io::Result<Load> {
        let now = match utilisation::read(&self.root) {
            Err(UtilisationError::Read { source, .. }) if is_shortage(&source) => return Err(source),
            now => now.ok(),
        };
        // Times are added up pCPU by pCPU: the kernel's sums go back when one goes off-line.
        if let Some(now) = now {
            if let Some(last) = &self.last {
                let spent = now.since(last);
                self.sum.busy_ms += spent.busy * MS_PER_TICK;
                self.sum.idle_ms += spent.idle * MS_PER_TICK;
                self.sum.steal_ms += spent.steal * MS_PER_TICK;
            }
            self.last = Some(now);
        }
        let proc = |name: &str| unless_short(fs::read_to_string(self.root.join("proc").join(name)));
        Ok(Load {
            waiting_us: proc("pressure/cpu")?.and_then(|text| waiting(&text)),
            memory: proc("meminfo")?.and_then(|text| HostMemory::of(&text)),
            swap: proc("vmstat")?.and_then(|text| {
                let bytes = |name| Some(task::value(&text, name)?.saturating_mul(PAGE));
                Some(Swapping { read: bytes("pswpin ")?, written: bytes("pswpout ")? })
            }),
            ..self.sum
        })
    }
}

/// Parses `some avg10=… avg60=… avg300=… total=MICROSECONDS`.
fn waiting(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::shortage::rig::{alone, leave_free};

    #[test]
    fn load_is_read_from_proc_and_a_pcpu_that_leaves_takes_nothing_away() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join("proc").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mut loads = Loads::new(root.path());
        assert_eq!(loads.read().unwrap(), Load::default(), "the kernel tells nothing");
        write("stat", "cpu0 10 0 5 100 0 0 0 7\ncpu1 500 0 0 900 0 0 0 0\n");
        write("pressure/cpu", "some avg10=99.57 avg60=99.42 avg300=84.90 total=616071021\nfull total=0\n");
        write("meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n");
        write("vmstat", "nr_free_pages 3\npswpin 75\npswpout 76\n");
        let first = loads.read().unwrap();
        assert_eq!((first.busy_ms, first.waiting_us), (0, Some(616_071_021)));
        let memory = HostMemory {
            total: 1000 << 10,
            available: 600 << 10,
            huge: 0,
            swap: 50 << 10,
            swap_used: 30 << 10,
        };
        assert_eq!(memory.used(), 400 << 10);
        assert_eq!(
            (first.memory, first.swap),
            (Some(memory), Some(Swapping { read: 75 * PAGE, written: 76 * PAGE }))
        );
        write("stat", "cpu0 40 0 5 150 10 0 0 9\n");
        let second = loads.read().unwrap();
        assert_eq!((second.busy_ms, second.idle_ms, second.steal_ms), (300, 600, 20));
        write("stat", "cpu0 50 0 5 150 10 0 0 9\ncpu1 510 0 0 900 0 0 0 0\n");
        assert_eq!(loads.read().unwrap().busy_ms, 400, "the time before it came is not known");
    }

    #[test]
    fn a_reading_fails_in_a_shortage_and_the_next_one_has_all_of_the_time() {
        alone(module_path!(), "a_reading_fails_in_a_shortage_and_the_next_one_has_all_of_the_time", || {
            let root = tempfile::tempdir().unwrap();
            let write = |name: &str, text: &str| fs::write(root.path().join("proc").join(name), text);
            fs::create_dir_all(root.path().join("proc")).unwrap();
            write("stat", "cpu0 10 0 5 100 0 0 0 7\n").unwrap();
            write("vmstat", "pswpin 75\npswpout 76\n").unwrap();
            let mut loads = Loads::new(root.path());
            loads.read().unwrap();
            write("stat", "cpu0 40 0 5 150 0 0 0 7\n").unwrap();
            let hoard = leave_free(0);
            assert!(is_shortage(&loads.read().unwrap_err()));
            drop(hoard);
            write("stat", "cpu0 50 0 5 150 0 0 0 7\n").unwrap();
            let load = loads.read().unwrap();
            assert_eq!((load.busy_ms, load.idle_ms, load.swap.is_some()), (400, 500, true));
        });
    }
}
