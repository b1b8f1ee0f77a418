//! Time that no change of the clock disturbs.
//!
//! Samples are stamped with *positions*: milliseconds that go on evenly while the host runs, and
//! are those since the Unix epoch as long as nobody sets the clock. If the clock is set, the
//! positions of this boot go on as before, and all of them are shown by the new clock: there is
//! neither a gap nor an overlap. The next boot continues behind the last position.

/// The end of a timeline, from which a later process continues it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The boot, as in `/proc/sys/kernel/random/boot_id`.
    pub(crate) boot: String,
    /// Position of the begin of the boot, in ms.
    pub(crate) base: u64,
    /// The last position of a sample, in ms.
    pub(crate) last: u64,
}

/// A position that no clock reaches: the year 10000.
const LATEST: u64 = 253_402_300_800_000;

/// The clocks of the host, read at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// Time since the boot in ms, with the time in which the host slept (`CLOCK_BOOTTIME`).
    pub since_boot: u64,
    /// Time since the Unix epoch in ms, as the clock shows it (`CLOCK_REALTIME`).
    pub wall: u64,
}

/// The timeline of a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    boot: String,
    base: u64,
}

impl Timeline {
    /// Continues the timeline of `before`, in the same boot or in a later one. A mark that no clock
    /// can have made is ignored. A boot without a name, and one whose time went back, as in a
    /// container that was moved, count as later ones: positions would exist already.
    pub(crate) fn resume(before: Option<Mark>, boot: &str, clocks: Clocks) -> Self {
        let by_clock = clocks.wall.saturating_sub(clocks.since_boot);
        let before = before.filter(|mark| mark.base.max(mark.last) < LATEST);
        let continues = |mark: &Mark| mark.base.saturating_add(clocks.since_boot) >= mark.last;
        let base = match before {
            Some(mark) if mark.boot == boot && !boot.is_empty() && continues(&mark) => mark.base,
            // A clock that was set back makes no positions that exist already.
            Some(mark) => by_clock.max((mark.last + 1).saturating_sub(clocks.since_boot)),
            None => by_clock,
        };
        Self { boot: boot.to_owned(), base }
    }

    /// Returns the position of a time since the boot.
    pub fn position(&self, since_boot: u64) -> u64 {
        self.base.saturating_add(since_boot)
    }

    /// Returns the time of a position as the clock shows it, in ms since the Unix epoch. The clock
    /// as it is set now counts for this boot. For an earlier boot it is the clock as it was when
    /// the timeline of that boot began.
    pub fn wall(&self, position: u64, now: Clocks) -> u64 {
        if position < self.base {
            return position;
        }
        let ago = i128::from(self.position(now.since_boot)) - i128::from(position);
        u64::try_from(i128::from(now.wall) - ago).unwrap_or(0)
    }

    /// Returns the end of the timeline, after a sample at the position `last`.
    pub(crate) fn mark(&self, last: u64) -> Mark {
        Mark { boot: self.boot.clone(), base: self.base, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn clocks(since_boot: u64, wall: u64) -> Clocks {
        Clocks { since_boot, wall }
    }

    #[test]
    fn positions_go_on_evenly_when_the_clock_is_set() {
        let timeline = Timeline::resume(None, "a", clocks(1000, 100 * HOUR));
        let before = timeline.position(2000);
        assert_eq!(before, 100 * HOUR + 1000);
        for set in [101 * HOUR, 99 * HOUR] {
            let now = clocks(3000, set);
            assert_eq!(timeline.position(now.since_boot), before + 1000);
            assert_eq!(timeline.wall(before, now), set - 1000, "a second ago by the new clock");
            assert_eq!(timeline.wall(before + 3000, now), set + 2000);
        }
    }

    #[test]
    fn a_restart_continues_and_a_boot_begins_behind() {
        let first = Timeline::resume(None, "a", clocks(1000, 100 * HOUR));
        let mark = first.mark(first.position(5000));
        assert_eq!(Timeline::resume(Some(mark.clone()), "a", clocks(9000, 7 * HOUR)), first);
        let later = Timeline::resume(Some(mark.clone()), "b", clocks(10, 101 * HOUR));
        assert_eq!(later.position(10), 101 * HOUR);
        assert_eq!(later.wall(mark.last, clocks(20, 500 * HOUR)), mark.last, "by the clock of then");
        let back = Timeline::resume(Some(mark.clone()), "b", clocks(10, HOUR));
        assert_eq!(back.position(10), mark.last + 1);
        assert_eq!(back.wall(back.position(10), clocks(10, HOUR)), HOUR);
        let moved = Timeline::resume(Some(mark.clone()), "a", clocks(10, HOUR));
        assert_eq!(moved.position(10), mark.last + 1, "time went back in the same boot");
        let nameless = Mark { boot: String::new(), ..mark.clone() };
        assert_eq!(Timeline::resume(Some(nameless), "", clocks(10, HOUR)).position(10), mark.last + 1);
        let damaged = Mark { last: u64::MAX, ..mark };
        let anew = Timeline::resume(Some(damaged), "b", clocks(10, HOUR));
        assert_eq!(anew.position(10), HOUR);
    }
}
