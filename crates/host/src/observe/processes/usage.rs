//! Memory, disk traffic and throttled time of a machine. These figures are read again only once one
//! of the machine's threads may have run: an idle machine costs no more than its CPU-time clock.
//! Others may change memory and disk traffic of an idle machine, for example when its memory is
//! swapped out. That is seen up to 32 readings later.

use std::io;

use crate::kernel::shortage::is_shortage;
use crate::kernel::task::{DiskUse, MemoryUse};

/// Figures of a machine, as last read.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Memory of its process.
    pub(super) memory: Cached<MemoryUse>,
    /// Bytes that its process has moved to and from disks.
    pub(super) disk: Cached<DiskUse>,
    /// Time in which CPU limits kept it from running, in nanoseconds.
    pub(super) throttled_ns: Cached<u64>,
}

impl Usage {
    /// Marks memory and disk traffic as outdated: each is read again when it is needed.
    pub(super) fn outdate_memory_and_disk(&mut self) {
        self.memory.is_current = false;
        self.disk.is_current = false;
    }

    /// Marks the throttled time as outdated.
    pub(super) fn outdate_throttled(&mut self) {
        self.throttled_ns.is_current = false;
    }

    /// Returns whether one of the figures could not be read for want of descriptors or memory.
    pub(super) const fn had_shortage(&self) -> bool {
        self.memory.had_shortage || self.disk.had_shortage || self.throttled_ns.had_shortage
    }
}

/// One figure.
#[derive(Debug, Default)]
pub(super) struct Cached<T> {
    value: Option<T>,
    is_current: bool,
    /// True if descriptors or memory were short when the figure was last asked for.
    had_shortage: bool,
}

impl<T: Copy> Cached<T> {
    /// Returns the figure; `None` if it is not needed, or cannot be read.
    pub(super) fn get(&mut self, is_needed: bool, read: impl FnOnce() -> io::Result<T>) -> Option<T> {
        if !is_needed {
            self.had_shortage = false;
            return None;
        }
        if !self.is_current {
            let read = read();
            self.had_shortage = read.as_ref().is_err_and(is_shortage);
            self.value = read.ok();
            self.is_current = self.value.is_some();
        }
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read_once_until_it_is_outdated() {
        let mut usage = Usage::default();
        assert_eq!(usage.throttled_ns.get(false, || panic!("it is not needed")), None);
        let absent = || Err(io::ErrorKind::NotFound.into());
        assert_eq!((usage.throttled_ns.get(true, absent), usage.had_shortage()), (None, false));
        let short = || Err(rustix::io::Errno::MFILE.into());
        assert_eq!((usage.throttled_ns.get(true, short), usage.had_shortage()), (None, true));
        assert_eq!(usage.throttled_ns.get(true, || Ok(7)), Some(7), "it could not be read before");
        assert!(!usage.had_shortage());
        assert_eq!(usage.throttled_ns.get(true, || panic!("it is current")), Some(7));
        usage.outdate_memory_and_disk();
        assert_eq!(usage.throttled_ns.get(true, || panic!("it is current")), Some(7));
        usage.outdate_throttled();
        assert_eq!(usage.throttled_ns.get(true, || Ok(8)), Some(8));
    }
}
