//! PL10: `taut check host` on this machine and on described machines (`crates/host/machines`),
//! every profile, beside the snapshots in the repository; and `--undo` of what it changes on each
//! of them, byte by byte.

use std::path::{Path, PathBuf};

use crate::figure::Bound;
use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::{Measured, NotMeasured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL10",
    what: "advice for described machines and this one, and its undo",
    on: "four described machines, and this one",
    goals: &[
        Goal::new("PL10-snapshots", &[Bound::Above(0.0, "tests passed")]),
        Goal::new(
            "PL10-machines",
            &[
                Bound::Exactly(4.0, "machines judged"),
                Bound::Exactly(4.0, "byte-identical after --undo"),
                Bound::Above(0.0, "files changed meanwhile"),
                Bound::Above(0.0, "lines of advice on this machine"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    // Snapshots and interrupted --apply and --undo are tests; they run here again.
    let tests =
        lab.in_checkout("cargo").args("test -q -p taut check").env("INSTA_UPDATE", "no").record("snapshots");
    let outcome = lab.tests(&tests).map(|tests| {
        let detail = "snapshots of four machines with three profiles, --apply and --undo";
        results.record("PL10-snapshots", [tests.passed], detail);
    });
    results.settle(&["PL10-snapshots"], outcome);
    machines(lab, results)
}

fn machines(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let unpack = lab.example("taut-host", "unpack")?;
    let (mut judged, mut undone, mut changed) = (0.0, 0.0, 0.0);
    let machines = lab.setup().checkout.join("crates/host/machines");
    let files = lab.machine().list(&machines)?;
    for file in files.iter().filter(|file| file.extension().is_none_or(|end| end == "txt")) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = lab.folder().join("machines").join(&name);
        lab.run(&Command::new(&unpack).arg(file).arg(&folder))?;
        let before = sum(lab, &folder)?;
        judged += judge(lab, &folder)?;
        let applied = check(lab, &folder, "--apply").record(&format!("{name}-applied"));
        let applied = lab.machine().run(&applied)?.stderr;
        let lines = applied.lines().iter().filter(|line| line.starts_with("changed:")).count();
        changed += lines as f64;
        let between = sum(lab, &folder)?;
        let undo = check(lab, &folder, "--undo");
        lab.run(&undo)?;
        lab.machine().remove_all(&folder.join("var"))?;
        let is_same = sum(lab, &folder)? == before && (lines == 0 || between != before);
        undone += f64::from(u8::from(is_same));
        lab.note(format!(
            "{name}: {lines} files changed, {}",
            if is_same { "given back" } else { "not as before" }
        ));
    }
    let here = lab.taut_command("-o json check host").record("here");
    // Status 1 says that something is not as it should be.
    let here = lab.machine().run(&here)?.stdout.json()?.list("lines")?.len() as f64;
    results.record("PL10-machines", [judged, undone, changed, here], "");
    Ok(())
}

fn check(lab: &Lab, folder: &Path, option: &str) -> Command {
    lab.taut_command("check host --root").arg(folder).arg(option)
}

/// Returns 1 if every line of the advice is counted in its summary.
fn judge(lab: &mut Lab, folder: &Path) -> Measured<f64> {
    let command = lab.taut_command("-o json check host --root").arg(folder).record("judged");
    let ended = lab.machine().run(&command)?;
    // Status 1 says that something is not as it should be.
    require(matches!(ended.status, Some(0 | 1)), format!("`{}` failed", ended.command))?;
    let advice = ended.stdout.json()?;
    let summary = advice.at("summary")?;
    let counts = summary.value().as_object().ok_or_else(|| NotMeasured::because("the summary has no counts"));
    let counted: f64 = counts?.values().filter_map(serde_json::Value::as_f64).sum();
    let lines = advice.list("lines")?.len() as f64;
    Ok(f64::from(u8::from((counted - lines).abs() < 0.5)))
}

/// Returns one sum over all files of a folder and their content.
fn sum(lab: &mut Lab, folder: &Path) -> Measured<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    let find = Command::new("find").arg(".").args("-type f").folder(folder);
    files.extend(lab.run(&find)?.stdout.lines().iter().map(PathBuf::from));
    files.sort();
    let mut command = Command::new("sha256sum").folder(folder);
    for file in &files {
        command = command.arg(file);
    }
    Ok(lab.run(&command)?.stdout.as_str().to_owned())
}
