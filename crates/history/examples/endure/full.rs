//! The file system becomes full.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use taut_history::History;

use crate::Outcome;
use crate::load;

/// Subjects that are recorded.
const SUBJECTS: u32 = 100;
/// Seconds before the file system is full, and after.
const EACH: u64 = 300;

/// Records while the folder's file system has no room, and after it has room again.
pub(crate) fn run(folder: &Path) -> Outcome<String> {
    let mut history = load::open(&folder.join("full.db"), 0)?;
    let filler = folder.join("filler");
    let before_failed = record(&mut history, 1..=EACH);
    fill(&filler)?;
    let full_failed = record(&mut history, EACH + 1..=2 * EACH);
    let older_lost = lost(&history, 1, EACH)?;
    let newer_lost = lost(&history, EACH, 2 * EACH)?;
    fs::remove_file(&filler)?;
    let after_failed = record(&mut history, 2 * EACH + 1..=3 * EACH);
    drop(history);
    let history = load::open(&folder.join("full.db"), 3 * EACH)?;
    let lost =
        lost(&history, 1, EACH)? + lost(&history, EACH, 2 * EACH)? + lost(&history, 2 * EACH, 3 * EACH)?;
    Ok(format!(
        r#"{{"failed_before":{before_failed},"failed_while_full":{full_failed},"failed_after":{after_failed},"older_lost":{older_lost},"newer_lost":{newer_lost},"lost_after":{lost}}}"#
    ))
}

/// Records these seconds, and returns the number of writes that failed.
fn record(history: &mut History, seconds: impl Iterator<Item = u64>) -> u32 {
    let keys: Vec<_> = (0..SUBJECTS).map(load::key).collect();
    let mut failed = 0;
    for second in seconds {
        load::record(history, &keys, second);
        if second.is_multiple_of(5) {
            failed += u32::from(history.write().is_err());
        }
    }
    failed
}

/// Writes a file until there is no room left.
fn fill(path: &Path) -> Outcome<()> {
    let mut file = File::create(path)?;
    let mut piece = vec![0; 65_536];
    while !piece.is_empty() {
        if file.write_all(&piece).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
    Ok(())
}

/// Returns the number of subjects whose counts between two seconds are missing or wrong.
fn lost(history: &History, from: u64, to: u64) -> Outcome<u32> {
    let position = |second: u64| history.timeline().position(1000 * second);
    let mut lost = 0;
    for subject in 0..SUBJECTS {
        let counted = history.counted(&load::key(subject), position(from), position(to))?;
        let expected = load::counters(subject, to).since(&load::counters(subject, from));
        let is_right =
            counted.is_some_and(|counted| counted.ms() == 1000 * (to - from) && counted.values == expected);
        lost += u32::from(!is_right);
    }
    Ok(lost)
}
