//! Reports on described machines, and the round trip of --apply and --undo.

use std::collections::BTreeMap;
use std::fs;

use taut_host::observe::captured::unpack;
use taut_plan::checklist::Verdict;

use super::*;

const MACHINES: [(&str, &str); 4] = [
    ("xeon-2-sockets", include_str!("../../../../host/machines/xeon-2-sockets.txt")),
    ("epyc-8-nodes", include_str!("../../../../host/machines/epyc-8-nodes.txt")),
    ("hybrid-laptop", include_str!("../../../../host/machines/hybrid-laptop.txt")),
    ("small-vm", include_str!("../../../../host/machines/small-vm.txt")),
];

const PROFILES: [Profile; 3] = [Profile::Latency, Profile::Throughput, Profile::Dense];

fn machine(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    unpack(text, folder.path()).unwrap();
    folder
}

fn judged(root: &Path, profile: Profile) -> Report {
    checklist::host(&taut_host::check::host(root).unwrap(), profile)
}

/// Reads every file below a folder.
fn files(folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else {
            into.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

fn everything(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    files(folder, &mut all);
    all
}

#[test]
fn captured_machines() {
    for (name, text) in MACHINES {
        let root = machine(text);
        for profile in PROFILES {
            insta::assert_snapshot!(format!("{name}-{profile}"), judged(root.path(), profile).to_string());
        }
    }
}

#[test]
fn first_hour_a_profile_that_wants_the_opposite_has_advice_of_its_own() {
    // This advice fits each profile: it names the setting that the wanted column has.
    const NEUTRAL: &str = "power.tuned";
    let mut compared = 0;
    for (name, text) in MACHINES {
        let root = machine(text);
        let latency = judged(root.path(), Profile::Latency);
        for profile in [Profile::Throughput, Profile::Dense] {
            for line in judged(root.path(), profile).lines {
                let other = latency.lines.iter().find(|other| other.id == line.id).unwrap();
                let missed = matches!(line.verdict, Verdict::Warn | Verdict::Bad);
                let opposite = missed && other.verdict == Verdict::Ok && other.wanted != line.wanted;
                if opposite && line.id != NEUTRAL {
                    assert_ne!(line.effect, other.effect, "{name} for {profile}: {}", line.id);
                    assert_ne!(line.why, other.why, "{name} for {profile}: {}", line.id);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 5, "{compared}");
}

#[test]
fn the_json_has_every_column() {
    let root = machine(MACHINES[0].1);
    let report = serde_json::to_value(judged(root.path(), Profile::Latency)).unwrap();
    let line = report["lines"].as_array().unwrap().iter().find(|line| line["id"] == "numa.balancing");
    insta::assert_snapshot!(serde_json::to_string_pretty(&line).unwrap());
    insta::assert_snapshot!(report["summary"].to_string());
}

#[test]
fn names_of_lines_are_unique_and_nothing_is_left_empty() {
    let root = machine(MACHINES[0].1);
    for profile in PROFILES {
        let report = judged(root.path(), profile);
        let mut ids: Vec<_> = report.lines.iter().map(|line| line.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), report.lines.len());
        for line in &report.lines {
            let texts = [line.id, line.what, line.why, line.effect, &line.found, &line.wanted];
            assert!(texts.iter().all(|text| !text.is_empty()), "{line:?}");
            let fits = line.changes.is_empty() || matches!(line.verdict, Verdict::Warn | Verdict::Bad);
            assert!(fits, "changes although all is well: {line:?}");
        }
    }
}

#[test]
fn apply_sets_the_wanted_values_and_undo_restores_them() {
    for (name, text) in MACHINES {
        for profile in PROFILES {
            let root = machine(text);
            let ledger = Ledger::new(root.path(), &root.path().join("var/lib/taut"));
            let (before, report) = (everything(root.path()), judged(root.path(), profile));
            let changes = report.changes();
            let changed = change::apply(&ledger, &changes).unwrap();
            assert_eq!((changed.done.len(), changed.failed.len()), (changes.len(), 0), "{name}");

            let after = judged(root.path(), profile);
            assert_eq!(after.changes(), [], "{name} for {profile}: one application is enough");
            assert!(after.summary.bad <= report.summary.bad);
            for line in report.lines.iter().filter(|line| !line.changes.is_empty()) {
                let now = after.lines.iter().find(|now| now.id == line.id).unwrap();
                assert_eq!(now.verdict, Verdict::Ok, "{name} for {profile}: {now:?}");
            }

            // Applying a second profile does not change what --undo restores.
            change::apply(&ledger, &judged(root.path(), Profile::Dense).changes()).unwrap();
            assert_eq!(change::undo(&ledger).unwrap().failed, []);
            fs::remove_dir_all(root.path().join("var")).unwrap();
            assert_eq!(everything(root.path()), before, "{name} for {profile}");
        }
    }
}

#[test]
fn a_folder_without_a_file_tree_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = taut_host::check::host(folder.path()).unwrap_err();
    let error = unreadable(folder.path(), &error).to_string();
    assert!(error.contains("is not a readable Linux file tree") && error.contains("hint: --root"), "{error}");
}
