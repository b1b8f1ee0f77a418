//! SK8: the fate of each key of `.vmx` files.

use crate::figure::{Bound, Value};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::Text;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SK8",
    what: "the fate of each key",
    on: "the .vmx files of the tests",
    goals: &[Goal::new("SK8", &[Bound::AtLeast(3.0, "files"), Bound::Exactly(0.0, "keys without a fate")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.start_lan(DaemonOptions::default())?;
    let source = lab.setup().checkout.join("crates/vm/tests/vmx");
    let copies = lab.folder().join("vmx");
    lab.machine().make_folder(&copies)?;
    let (mut files, mut keys, mut silent) = (0, 0.0, 0.0);
    for path in lab.machine().list(&source)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = lab.read(&path)?;
        let copy = copies.join(&name);
        lab.machine().write(&copy, text.as_str())?;
        for disk in disks(&text) {
            // Creating a VM looks at its disks, only starting it uses them.
            if !disk.starts_with('/') {
                lab.machine().write(&copies.join(disk), &"\0".repeat(1 << 20))?;
            }
        }
        let words = format!("vm create -f {} --name vmx{files} --portgroup lan", copy.display());
        let created = lab.taut_json(words)?;
        let imported = created.list("imported")?;
        let with_fate = imported.iter().filter(|key| key.has("fate")).count() as f64;
        let all = text.lines().iter().filter(|line| is_setting(line)).count() as f64;
        keys += all;
        silent += (all - with_fate).abs();
        files += 1;
        lab.note(format!("{name}: {all} keys, {with_fate} with a fate"));
    }
    results.record("SK8", [Value::count(files), silent.into()], format!("{keys} keys"));
    Ok(())
}

fn is_setting(line: &str) -> bool {
    !line.trim_start().starts_with('#') && line.contains('=')
}

/// Names of the disks that a file names.
fn disks(text: &Text) -> Vec<String> {
    let named = text.lines().into_iter().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let is_disk = key.trim().to_ascii_lowercase().ends_with("filename");
        is_disk.then(|| value.trim().trim_matches('"').to_owned())
    });
    named.filter(|name| !name.is_empty()).collect()
}
