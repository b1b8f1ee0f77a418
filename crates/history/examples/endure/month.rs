//! Size of the file of many busy subjects.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::Outcome;
use crate::load;

/// Parts of the subjects, as `tautd` has them: each second, old samples of one part are deleted.
const PARTS: u64 = 600;
/// Time in s at the end for which a sample is taken each second: twice as long as those are kept.
const DENSE: u64 = 7200;
/// Time in s between two samples before. Those in between would not be kept for a day.
const THIN: u64 = 20;
/// Time in s between two writes of thin samples: fewer than `tautd` makes, of the same samples.
const THIN_WRITE: u64 = 320;
/// Time in s between two writes of dense samples.
const DENSE_WRITE: u64 = 5;

/// Records `subjects` for so many days.
pub(crate) fn run(folder: &Path, subjects: u32, days: u64) -> Outcome<String> {
    let file = folder.join("month.db");
    let begun = Instant::now();
    let mut history = load::open(&file, 0)?;
    let end = days * 86_400;
    let (mut second, mut most) = (0, 0);
    let mut thinly = 0;
    while second < end {
        let is_dense = second + DENSE >= end;
        let (step, write) = if is_dense { (1, DENSE_WRITE) } else { (THIN, THIN_WRITE) };
        second += step;
        thinly += step;
        load::record(&mut history, subjects, second);
        if thinly >= write {
            thinly = 0;
            history.write()?;
            most = most.max(size(&file)?);
        }
        for part in second + 1 - step..=second {
            history.prune(part, PARTS)?;
        }
    }
    history.write()?;
    let after = size(&file)?;
    most = most.max(after);
    // The month is there: averages of all of it, of a day, and of a second.
    let position = history.timeline().position(1000 * end);
    let mut wrong = 0;
    for subject in 0..subjects {
        for period in [days * 86_400 - 600, 86_400, 3000, 1] {
            let counted = history.counted(&load::key(subject), position - 1000 * period, position)?;
            let is_right = counted.is_some_and(|counted| {
                let at = |position: u64| {
                    load::counters(subject, (position - history.timeline().position(0)) / 1000)
                };
                let grown = at(counted.to).since(&at(counted.from));
                counted.ms() >= 1000 * period && counted.values == grown
            });
            wrong += u32::from(!is_right);
        }
    }
    Ok(format!(
        r#"{{"subjects":{subjects},"days":{days},"most_bytes":{most},"bytes":{after},"wrong":{wrong},"seconds":{:.0}}}"#,
        begun.elapsed().as_secs_f64()
    ))
}

/// Returns the bytes of a history's files.
fn size(file: &Path) -> Outcome<u64> {
    let log = file.with_extension("db-wal");
    Ok(fs::metadata(file)?.len() + fs::metadata(log).map_or(0, |log| log.len()))
}
