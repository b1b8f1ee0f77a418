//! SK1: the demo: how long guests and measurement take, and what it leaves behind, also when it is
//! interrupted.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::figure::{Bound, Value};
use crate::lab::Lab;
use crate::machine::{Command, Signal};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SK1",
    what: "how long the demo takes, and what it leaves behind",
    on: "this machine",
    goals: &[
        Goal::new("SK1-demo", &[Bound::AtMost(120.0, "s"), Bound::Exactly(0.0, "left behind")]),
        Goal::new("SK1-interrupted", &[Bound::Exactly(0.0, "left behind")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let before = inventory(lab)?;
    let demo = command(lab, "demo")?;
    let took = lab.run(&demo)?.took.as_secs_f64();
    let left = difference(lab, &before)?;
    results.record("SK1-demo", [Value::of(took), left], "");

    // Once more, interrupted in the middle of a measurement.
    let demo = command(lab, "interrupted")?.session();
    let job = lab.start(&demo)?;
    lab.until("the demo measures", 120, |lab| {
        Ok(lab.machine().output(&job)?.contains("Debian VM to Debian VM"))
    })?;
    lab.sleep(2.0)?;
    lab.machine().signal_session(job.pid, Signal::Interrupt)?;
    let status = lab.wait_for_end(&job, Duration::from_secs(60))?.status;
    let left = difference(lab, &before)?;
    let ended = status.map_or("by a signal".to_owned(), |status| format!("with status {status}"));
    results.record("SK1-interrupted", [left], format!("ended {ended}"));
    Ok(())
}

fn command(lab: &mut Lab, name: &str) -> Measured<Command> {
    let out = lab.fresh(name)?;
    let setup = lab.setup();
    let script = lab.in_checkout(setup.checkout.join("tools/demo.sh"));
    Ok(script.arg(&setup.programs).arg(&setup.images).arg(&out).record(name).limit(600))
}

/// Lists what a demo could leave behind: namespaces, network devices, processes, huge pages and
/// folders.
fn inventory(lab: &mut Lab) -> Measured<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for command in ["netns list", "-o link"] {
        let text = lab.run(&Command::new("ip").args(command))?.stdout;
        // The first words are the name, the rest may change.
        let name = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        found.extend(text.lines().into_iter().map(name));
    }
    let pages = lab.read("/proc/meminfo")?.number_between("HugePages_Total:", "");
    // A kernel without huge pages has none to leave.
    found.extend(pages.ok().map(|pages| format!("{pages} huge pages")));
    for process in lab.machine().list(Path::new("/proc"))? {
        let name = lab.read(process.join("comm"));
        let name = name.as_ref().map_or("", |name| name.trimmed());
        if ["tautd", "taut-console", "taut-fabric", "taut-micro", "taut"].contains(&name)
            || name.starts_with("qemu-system")
        {
            found.insert(format!("{name}, process {}", process.display()));
        }
    }
    let folders = lab.machine().list(Path::new("/tmp"))?.into_iter();
    let demos = folders.map(|path| path.display().to_string());
    found.extend(demos.filter(|path| path.starts_with("/tmp/taut-demo.")));
    if lab.machine().exists(Path::new("/run/taut")) {
        found.insert("/run/taut".to_owned());
    }
    Ok(found)
}

/// Counts what is there now and was not before, or the other way round.
fn difference(lab: &mut Lab, before: &BTreeSet<String>) -> Measured<Value> {
    let now = inventory(lab)?;
    let changed: Vec<&String> = before.symmetric_difference(&now).collect();
    for change in &changed {
        let sign = if now.contains(*change) { "new" } else { "gone" };
        lab.note(format!("{sign}: {change}"));
    }
    Ok(Value::count(changed.len()))
}
