//! Runs the rows of a set and writes their results.

mod report;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::lab::{Lab, Setup};
use crate::machine::{Machine, is_interrupted};
use crate::reason::{Context, Measured, NotMeasured};
use crate::row::{Outcome, Results, Row};

pub use report::Report;

/// Makes the folder of a run, `SET-TIME` in `out`, which is new. The link `SET-latest` beside it
/// leads there.
pub fn make_folder(out: &Path, set: &str, time: &str) -> Measured<PathBuf> {
    fs::create_dir_all(out).when(out.display())?;
    let out = fs::canonicalize(out)?;
    for number in 1.. {
        let name = if number == 1 { format!("{set}-{time}") } else { format!("{set}-{time}-{number}") };
        match fs::create_dir(out.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                made.when(&name)?;
                let link = out.join(format!("{set}-latest"));
                let _ = fs::remove_file(&link);
                symlink(&name, &link).when(link.display())?;
                return Ok(out.join(name));
            }
        }
    }
    unreachable!("a number is free")
}

/// Runs rows, each in a lab of its own. Results of each go to a folder of its name in `folder`.
pub fn run(machine: &mut dyn Machine, setup: &Setup, rows: &[&Row], folder: &Path) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for row in rows {
        if !machine.is_stand_in() {
            println!("\n== {}: {}, on {}", row.id, row.what, row.on);
        }
        outcomes.extend(run_row(machine, setup, row, &folder.join(row.id)));
    }
    outcomes
}

/// Runs a row. An error of the row, a panic too, leaves the goals that it has not recorded not
/// measured.
pub fn run_row(machine: &mut dyn Machine, setup: &Setup, row: &Row, folder: &Path) -> Vec<Outcome> {
    let mut results = Results::new(row.goals, setup.quick);
    if !machine.is_stand_in() {
        results = results.printing();
    }
    for goal in row.goals {
        let missing = goal.beside.iter().find_map(|rival| rival.find(machine).err());
        if let Some(reason) = missing {
            results.not_measured(goal.id, &reason);
        }
    }
    if row.goals.iter().all(|goal| results.has(goal.id)) {
        return results.finish(Ok(()));
    }
    if is_interrupted() {
        return results.finish(Err(NotMeasured::because("interrupted")));
    }
    let mut lab = match Lab::open(machine, setup, folder) {
        Ok(lab) => lab,
        Err(reason) => return results.finish(Err(reason)),
    };
    let ended = catch_unwind(AssertUnwindSafe(|| (row.run)(&mut lab, &mut results)));
    lab.close();
    results.finish(ended.unwrap_or_else(|_| Err(NotMeasured::because("the row panicked"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_folder_of_its_own() {
        let out = tempfile::tempdir().unwrap();
        let first = make_folder(out.path(), "SK", "20260101-000000").unwrap();
        fs::write(first.join("ping.json"), "{}").unwrap();
        let second = make_folder(out.path(), "SK", "20260101-000000").unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read_dir(&second).unwrap().count(), 0);
        assert_eq!(fs::canonicalize(out.path().join("SK-latest")).unwrap(), second);
    }
}
