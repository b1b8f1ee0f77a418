//! A process that records is killed again and again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::Outcome;
use crate::load;

/// Subjects that are recorded.
const SUBJECTS: u32 = 100;
/// Samples between two writes, as in `tautd`.
const SAMPLES_PER_WRITE: u64 = 5;
/// Time for which a sample is taken and written: a second of the program's clock.
const PACE: Duration = Duration::from_millis(2);
/// First second that is recorded.
const FIRST: u64 = 1000;

/// Records for ever, from a second on. Prints each second that was recorded.
pub(crate) fn record(file: &Path, first: u64) -> Outcome<()> {
    let mut history = load::open(file, first)?;
    let keys: Vec<_> = (0..SUBJECTS).map(load::key).collect();
    let mut out = std::io::stdout();
    for second in first.. {
        load::record(&mut history, &keys, second);
        writeln!(out, "{second}")?;
        if second.is_multiple_of(SAMPLES_PER_WRITE) {
            history.write()?;
        }
        sleep(PACE);
    }
    Ok(())
}

/// Kills a recording process so many times, and looks for what it has recorded.
pub(crate) fn run(folder: &Path, times: u32) -> Outcome<String> {
    let file = folder.join("kills.db");
    let (mut next, mut longest, mut older_lost, mut kills) = (FIRST, 0, 0, 0);
    for time in 0..times {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["record".as_ref(), file.as_os_str(), next.to_string().as_ref()])
            .stdout(Stdio::piped())
            .spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or("the child has no output")?);
        let mut lines = said.lines();
        let first = lines.next().ok_or("the child ended at once")??;
        // Different moments of a write are hit.
        sleep(Duration::from_micros(20_000 + u64::from(time) * 7919 % 40_000));
        child.kill()?;
        let last = lines.last().transpose()?.unwrap_or(first);
        kills += u32::from(child.wait()?.signal() == Some(9));
        let last: u64 = last.parse()?;
        let history = load::open(&file, last)?;
        let position = |second: u64| history.timeline().position(1000 * second);
        for subject in 0..SUBJECTS {
            let counted = history.counted(&load::key(subject), position(FIRST), position(last))?;
            // The first kill may come before the first write.
            let Some(counted) = counted else {
                longest = longest.max(last - FIRST);
                continue;
            };
            longest = longest.max((position(last) - counted.to) / 1000);
            let at = |at: u64| load::counters(subject, (at - position(0)) / 1000);
            let is_whole =
                counted.from == position(FIRST) && counted.values == at(counted.to).since(&at(counted.from));
            older_lost += u32::from(!is_whole);
        }
        next = last + 1;
    }
    Ok(format!(
        r#"{{"kills":{kills},"recorded":{},"longest_lost_s":{longest},"older_lost":{older_lost}}}"#,
        next - FIRST
    ))
}
