//! Subjects whose counters all grow, on a clock that the program drives.

use std::path::Path;

use taut_history::thinning::USUAL;
use taut_history::{Clocks, FileError, History, Reading, Values};

/// Counters of a subject: bytes and frames both ways, multicast, waits, interrupts, kicks, and
/// drops for some reasons.
const COUNTERS: u8 = 14;
/// Bytes of 10 Gbit/s in a second. The other counters are smaller.
const BYTES_PER_SECOND: u64 = 1_250_000_000;
/// Time of the boot, in ms since the Unix epoch.
const BOOT: u64 = 1_700_000_000_000;

/// Opens a history at a second after the boot.
pub(crate) fn open(file: &Path, second: u64) -> Result<History, FileError> {
    let clocks = Clocks { since_boot: 1000 * second, wall: BOOT + 1000 * second };
    History::open(file, USUAL, "boot", clocks)
}

/// Returns the key of a subject.
pub(crate) fn key(subject: u32) -> String {
    format!("port/{subject}")
}

/// Returns the counters of a subject at a second.
pub(crate) fn counters(subject: u32, second: u64) -> Values {
    // Rates differ by subject and by second, as those of busy ports do.
    let wave = (second * 7919 + u64::from(subject) * 104_729) % 1000;
    Values::new((0..COUNTERS).map(|number| {
        let rate = (BYTES_PER_SECOND >> (2 * number.min(10))) | 1;
        (number, rate * second + rate * wave / 1000)
    }))
}

/// Records all subjects, by their keys, at a second.
pub(crate) fn record(history: &mut History, keys: &[String], second: u64) {
    for (subject, key) in (0..).zip(keys) {
        let reading = Reading::new(counters(subject, second).iter());
        history.record(1000 * second, key, key, &reading);
    }
}
