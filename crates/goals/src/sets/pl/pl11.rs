//! PL11: `.vmx` files of ESX. No key of a file is lost, and every key of the best practices has an
//! effect, or is reported with what does the same here.
//!
//! An effect is found by trying: a VM is imported and started twice, and the files differ in this
//! key's value only. The key takes effect if the VM's process differs, or what `taut vm explain`
//! says of it. The importer's own word for a key counts only if it says that the key has no effect.

use std::path::Path;

use crate::figure::{Bound, Value};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::Doc;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL11",
    what: "keys of .vmx files, and what they change",
    on: "the .vmx files of crates/vm/tests, and VMs that differ in one key",
    goals: &[
        Goal::new("PL11-keys", &[Bound::Exactly(0.0, "keys lost"), Bound::AtLeast(4.0, "files")]),
        Goal::new(
            "PL11-effects",
            &[
                Bound::Exactly(0.0, "keys without effect or report"),
                Bound::Exactly(13.0, "keys"),
                Bound::Stated("change the VM"),
                Bound::Stated("are stored for another host or card"),
            ],
        ),
    ],
    run,
};

/// A VM of ESX that its administrator tuned, small enough for any host.
const TUNED: &str = r#"displayName = "tuned"
guestOS = "rhel6-64"
memsize = "128"
numvcpus = "1"
sched.cpu.latencySensitivity = "high"
sched.mem.min = "128"
numa.nodeAffinity = "0"
numa.vcpu.min = "9"
monitor_control.halt_desched = "false"
monitor.idleLoopSpinBeforeHalt = "true"
monitor.idleLoopSpinBeforeHaltUP = "true"
monitor.idleLoopMinSpinUS = "100"
ethernet0.present = "TRUE"
ethernet0.virtualDev = "vmxnet3"
ethernet0.networkName = "lan"
ethernet0.addressType = "generated"
ethernet0.generatedAddress = "00:0c:29:3e:10:01"
ethernet0.coalescingScheme = "disabled"
ethernet1.present = "TRUE"
ethernet1.virtualDev = "e1000e"
ethernet1.networkName = "lan"
ethernet1.addressType = "generated"
ethernet1.generatedAddress = "00:0c:29:3e:10:02"
ethernet1.coalescingScheme = "rbc"
ethernet1.coalescingParams = "8000"
nvme0.present = "TRUE"
nvme0:0.present = "TRUE"
nvme0:0.fileName = "blank.img"
"#;

/// A VM with two vCPUs, for the key that is for those.
const SEVERAL: [(&str, &str); 2] = [("numvcpus", "2"), ("sched.cpu.latencySensitivity", "normal")];

/// A VM that shares the host, for the key that binds it.
const SHARED: [(&str, &str); 1] = [("sched.cpu.latencySensitivity", "normal")];

/// A key of the best practices.
struct Key {
    name: &'static str,
    /// Two values that ask for different things.
    values: [&'static str; 2],
    /// Other lines of both files.
    besides: &'static [(&'static str, &'static str)],
}

const fn key(name: &'static str, values: [&'static str; 2]) -> Key {
    Key { name, values, besides: &[] }
}

const KEYS: [Key; 13] = [
    key("sched.cpu.latencySensitivity", ["high", "normal"]),
    Key { name: "sched.cpu.affinity", values: ["1", "0"], besides: &SHARED },
    key("sched.mem.min", ["128", "64"]),
    key("numa.nodeAffinity", ["0", "all"]),
    key("numa.vcpu.min", ["9", "1"]),
    key("numa.vcpu.preferHT", ["TRUE", "FALSE"]),
    key("monitor_control.halt_desched", ["false", "true"]),
    Key { name: "monitor.idleLoopSpinBeforeHalt", values: ["true", "false"], besides: &SEVERAL },
    key("monitor.idleLoopSpinBeforeHaltUP", ["true", "false"]),
    key("monitor.idleLoopMinSpinUS", ["100", "200"]),
    key("ethernet0.coalescingScheme", ["disabled", "adapt"]),
    key("ethernet1.coalescingParams", ["8000", "4000"]),
    key("ethernet0.virtualDev", ["vmxnet3", "e1000"]),
];

/// What is seen of a VM.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Its settings.
    settings: String,
    /// Its command line, the pCPUs of its threads, its locked memory, and its explanation.
    vm: String,
}

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The VM differs.
    Changes,
    /// Only its settings differ.
    Stored,
    /// Nothing differs, and the importer says so.
    Reported,
    /// Nothing differs, and nobody says so.
    Neither,
}

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.enter_scope()?;
    lab.start_lan(DaemonOptions::default())?;
    let outcome = no_key_is_lost(lab, results);
    results.settle(&["PL11-keys"], outcome);
    effects(lab, results)
}

fn no_key_is_lost(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let folder = lab.setup().checkout.join("crates/vm/tests/vmx");
    let files = lab.machine().list(&folder)?;
    let (mut lost, mut all) = (0, 0);
    for (number, file) in files.iter().enumerate() {
        let text = lab.read(file)?;
        // Empty files stand for the disks that the file names.
        for disk in text.all_between("fileName = \"", "\"") {
            blank(lab, &disk)?;
        }
        let keys = text.lines().iter().filter(|line| !line.starts_with('#') && line.contains('=')).count();
        let copy = lab.folder().join(format!("file{number}.vmx"));
        lab.machine().copy(file, &copy)?;
        let name = format!("file{number}");
        let fates = import(lab, &copy, &name)?.list("imported")?.len();
        // Its addresses are those of the VM that is tried next.
        lab.taut(format!("vm delete {name}"))?;
        lost += keys.abs_diff(fates);
        all += keys;
    }
    let figures = [Value::count(lost), Value::count(files.len())];
    results.record("PL11-keys", figures, format!("{all} keys"));
    Ok(())
}

fn effects(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    // Two VMs with the same file must look the same: otherwise any key would take effect.
    let same = [file(&KEYS[0], 0), file(&KEYS[0], 0)].map(|text| look(lab, &text));
    let [one, other] = same;
    let (one, other) = (one?.0, other?.0);
    require(one == other, format!("two VMs with the same file differ: {}", difference(&one, &other)))?;
    let mut fates = Vec::new();
    for key in &KEYS {
        let [(one, fate), (other, _)] = [look(lab, &file(key, 0))?, look(lab, &file(key, 1))?];
        let fate = judge(&one, &other, is_reported(&fate, key.name)?);
        lab.note(format!("{}: {fate:?}", key.name));
        fates.push(fate);
    }
    let count = |wanted: Fate| Value::count(fates.iter().filter(|fate| **fate == wanted).count());
    let figures =
        [count(Fate::Neither), Value::count(fates.len()), count(Fate::Changes), count(Fate::Stored)];
    let reported = count(Fate::Reported).value;
    results.record("PL11-effects", figures, format!("{reported} are reported to have no effect"));
    Ok(())
}

/// Returns the first lines that differ.
fn difference(one: &Seen, other: &Seen) -> String {
    let lines = |seen: &Seen| [seen.settings.as_str(), &seen.vm].join("\n");
    let (one, other) = (lines(one), lines(other));
    let pair = one.lines().zip(other.lines()).find(|(one, other)| one != other);
    pair.map_or("in length".to_owned(), |(one, other)| format!("`{one}` and `{other}`"))
}

fn judge(one: &Seen, other: &Seen, is_reported: bool) -> Fate {
    match (one.vm == other.vm, one.settings == other.settings) {
        (false, _) => Fate::Changes,
        (true, false) => Fate::Stored,
        (true, true) if is_reported => Fate::Reported,
        (true, true) => Fate::Neither,
    }
}

/// Writes a file in which a key has one of its values.
fn file(key: &Key, value: usize) -> String {
    let mut lines: Vec<(String, String)> = TUNED.lines().filter_map(parse).collect();
    for (name, value) in key.besides.iter().chain(&[(key.name, key.values[value])]) {
        lines.retain(|line| line.0 != *name);
        lines.push(((*name).to_owned(), (*value).to_owned()));
    }
    let lines: Vec<String> = lines.iter().map(|(name, value)| format!("{name} = \"{value}\"")).collect();
    lines.join("\n") + "\n"
}

fn parse(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(" = ")?;
    Some((name.to_owned(), value.trim_matches('"').to_owned()))
}

/// Imports and starts a VM, and looks at it. Returns what the importer says, too.
fn look(lab: &mut Lab, text: &str) -> Measured<(Seen, Doc)> {
    blank(lab, "blank.img")?;
    let file = lab.folder().join("tried.vmx");
    lab.machine().write(&file, text)?;
    let imported = import(lab, &file, "tried")?;
    // An ESX host does not reserve all of a CPU by MHz; exclusive pCPUs take all of it here.
    if text.contains("numvcpus = \"1\"") {
        lab.taut("vm set tried --cpu-reservation full")?;
    }
    lab.taut("vm start tried")?;
    // The plan is in force after the next reconciliation.
    lab.sleep(2.0)?;
    let pid = lab.vm_pid("tried")?;
    let line = lab.read(format!("/proc/{pid}/cmdline"))?.as_str().replace('\0', " ");
    let mut vm = vec![line];
    for thread in lab.machine().list(Path::new(&format!("/proc/{pid}/task")))? {
        // A thread may have ended meanwhile. Only vCPUs are there all the time.
        let Ok(status) = lab.read(thread.join("status")) else { continue };
        let name = status.between("Name:", "")?;
        if name.starts_with("CPU ") {
            vm.push(format!("{name} on {}", status.between("Cpus_allowed_list:", "")?));
        }
    }
    // The amount includes QEMU's own memory, which is not the same each time.
    let locked = lab.read(format!("/proc/{pid}/status"))?.number_between("VmLck:", "kB")?;
    vm.push(format!("memory is locked: {}", locked > 0.0));
    let explained = lab.taut_command("vm explain tried").record("explain");
    vm.push(lab.run(&explained)?.stdout.as_str().to_owned());
    let settings = lab.vm_show("tried")?.at("spec")?.value().to_string();
    lab.taut("vm stop --force tried")?;
    lab.taut("vm delete tried")?;
    Ok((Seen { settings, vm: vm.join("\n") }, imported))
}

/// Creates a VM of a file, and returns what `taut` prints about its keys.
fn import(lab: &mut Lab, file: &Path, name: &str) -> Measured<Doc> {
    let words = format!("-o json vm create -f {} --name {name} --portgroup lan", file.display());
    let command = lab.taut_command(words).record("imported");
    lab.run(&command)?.stdout.json()
}

/// Makes an empty disk beside the files.
fn blank(lab: &mut Lab, name: &str) -> Measured<()> {
    let path = lab.folder().join(name.trim_start_matches('/'));
    if let Some(folder) = path.parent() {
        lab.machine().make_folder(folder)?;
    }
    lab.machine().write(&path, &"\0".repeat(1 << 16))
}

/// Returns true if the importer says, in words, that a key has no effect.
fn is_reported(imported: &Doc, key: &str) -> Measured<bool> {
    let fate = imported.find("imported", &[("key", key)])?.at("fate")?;
    Ok(fate.matches(&[("fate", "reported")]) && !fate.text("note")?.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_of_a_key_differ_in_its_value_only() {
        for key in &KEYS {
            let [one, other] = [0, 1].map(|value| file(key, value));
            let differing = one.lines().zip(other.lines()).filter(|(one, other)| one != other).count();
            assert_eq!((differing, one.lines().count()), (1, other.lines().count()), "{}", key.name);
            assert_eq!(one.matches(&format!("{} = ", key.name)).count(), 1, "{}", key.name);
        }
    }

    #[test]
    fn the_word_of_the_importer_counts_only_where_nothing_differs() {
        let seen = |settings: &str, vm: &str| Seen { settings: settings.into(), vm: vm.into() };
        let base = seen("a", "b");
        assert_eq!(judge(&base, &seen("x", "y"), true), Fate::Changes);
        assert_eq!(judge(&base, &seen("x", "b"), true), Fate::Stored);
        assert_eq!(judge(&base, &seen("a", "b"), true), Fate::Reported);
        assert_eq!(judge(&base, &seen("a", "b"), false), Fate::Neither);
    }

    #[test]
    fn a_report_needs_words() {
        let imported = |fate| Doc::from(json!({"imported": [{"key": "a", "value": "1", "fate": fate}]}));
        let is = |fate| is_reported(&imported(fate), "a").unwrap();
        assert!(is(json!({"fate": "reported", "note": "use cpuset.cpus"})));
        assert!(!is(json!({"fate": "reported", "note": ""})));
        assert!(!is(json!({"fate": "understood", "field": "memory"})));
    }
}
