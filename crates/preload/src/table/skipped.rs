//! Calls that wait for several descriptors and find one with a queue pair ready need not ask the
//! kernel about the others each time.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use super::Table;

/// Most calls in a row that do not ask. A close through the C library's `close` or the like ends
/// the row, so that the kernel says that the number is not open. A close by a system call of the
/// program's own, or by `fclose`, does not.
const MOST: u32 = 15;

impl Table {
    /// Tells whether a call need not ask the kernel about a descriptor: at most [`MOST`] calls in a
    /// row, and only within one tick of the clock. Of several descriptors, the call passes the
    /// first one.
    pub(crate) fn may_skip(&self, fd: RawFd, tick: u32) -> bool {
        let Some(slot) = self.slot(fd) else { return false };
        // Tick and number of closes only grow, so a change of either changes the sum.
        let tick = tick.wrapping_add(self.closed.load(Relaxed));
        let skipped = slot.skipped.load(Relaxed);
        if skipped < MOST && slot.tick.load(Relaxed) == tick {
            slot.skipped.store(skipped + 1, Relaxed);
            return true;
        }
        slot.tick.store(tick, Relaxed);
        slot.skipped.store(0, Relaxed);
        false
    }

    /// Notes that the program has closed descriptors.
    pub(crate) fn note_close(&self) {
        self.closed.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_each_sixteenth_time_and_after_each_tick() {
        static TABLE: Table = Table::new();
        let asked = |tick, calls: usize| (0..calls).filter(|_| !TABLE.may_skip(5, tick)).count();
        assert_eq!(asked(7, 1), 1);
        assert_eq!(asked(7, 15), 0);
        assert_eq!(asked(7, 32), 2);
        assert_eq!([asked(8, 1), asked(8, 1), asked(9, 1)], [1, 0, 1]);
        assert_eq!(asked(9, 2), 0);
        TABLE.note_close();
        assert_eq!([asked(9, 1), asked(9, 1)], [1, 0]);
        assert!(!TABLE.may_skip(-1, 9) && !TABLE.may_skip(-1, 9), "not in the table");
    }
}
