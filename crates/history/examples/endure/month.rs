//! Size of the file of many busy subjects.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::Outcome;
use crate::load;

/// Parts of the subjects, as `tautd` has them: each second, old samples of one part are deleted.
const PARTS: u64 = 600;
/// Begins of the three parts of the time, in s before its end, with the time between two samples
/// and between two writes. Samples that `tautd` would take in between would have been deleted at
/// the end: those of each second are kept for an hour, and those of 20 s for a day. Each part is
/// twice as long.
const PARTS_OF_TIME: [(u64, u64, u64); 3] = [(7200, 1, 5), (2 * 86_400, 20, 320), (u64::MAX, 300, 4800)];

/// Records `subjects` for so many days.
pub(crate) fn run(folder: &Path, subjects: u32, days: u64) -> Outcome<String> {
    let file = folder.join("month.db");
    let begun = Instant::now();
    let mut history = load::open(&file, 0)?;
    let end = days * 86_400;
    let keys: Vec<_> = (0..subjects).map(load::key).collect();
    let (mut second, mut most) = (0, 0);
    let mut unwritten = 0;
    while second < end {
        let part = PARTS_OF_TIME.iter().find(|(begin, ..)| end - second <= *begin);
        let (_, step, write) = part.ok_or("the time has no end")?;
        second += step;
        unwritten += step;
        load::record(&mut history, &keys, second);
        if unwritten >= *write {
            unwritten = 0;
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
            let counted = history.counted(&keys[subject as usize], position - 1000 * period, position)?;
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
