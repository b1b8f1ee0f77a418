//! `taut check host --apply` and `--undo` on this host: every file has its former content
//! afterwards, whatever was killed in between.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use taut_tests::Taut;

/// Files that `--apply` would change, with their content; restored if the test fails.
struct Settings(BTreeMap<PathBuf, String>);

impl Settings {
    fn look(taut: &Taut) -> Self {
        let mut files = BTreeMap::new();
        for profile in ["latency", "throughput", "dense"] {
            let outcome = taut.run(["-o", "json", "check", "host", "--profile", profile]);
            let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
            for line in report["lines"].as_array().unwrap() {
                for change in line["changes"].as_array().into_iter().flatten() {
                    // Settings of network cards are in the tests of `taut pnic`.
                    let Some((path, _)) = change.as_str().unwrap().split_once(" = ") else { continue };
                    let path = PathBuf::from("/").join(path);
                    let content = fs::read_to_string(&path).unwrap();
                    files.insert(path, content);
                }
            }
        }
        Self(files)
    }

    fn contents(&self) -> Vec<String> {
        self.0.keys().map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    fn changed(&self) -> Vec<&PathBuf> {
        let is_other = |(path, content): &(&PathBuf, &String)| fs::read_to_string(path).unwrap() != **content;
        self.0.iter().filter(is_other).map(|(path, _)| path).collect()
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for path in self.changed() {
            eprintln!("{} was left changed", path.display());
            // The kernel accepts one choice, not the list with the chosen one in brackets.
            let content = &self.0[path];
            let chosen = content.split('[').nth(1).and_then(|rest| rest.split(']').next());
            let _ = fs::write(path, chosen.unwrap_or(content));
        }
    }
}

#[test]
fn undo_restores_every_byte_that_apply_changed() {
    let mut taut = Taut::start();
    let settings = Settings::look(&taut);
    let applied = taut.run(["check", "host", "--profile", "latency", "--apply"]);
    let changed = settings.changed();
    let told = applied.stderr.lines().filter(|line| line.starts_with("changed: /")).count();
    assert_eq!(changed.len(), told, "{changed:?}: {}", applied.stderr);
    if !changed.is_empty() {
        assert!(taut.dir().join("state/host-changes.json").exists(), "where the daemon has its ledger");
    }
    // After another profile and another daemon, the first values still count.
    taut.kill_daemon();
    taut.restart_daemon();
    taut.run(["check", "host", "--profile", "dense", "--apply"]);
    let held = settings.contents();
    taut.ok(["host", "restore"]);
    assert_eq!(settings.contents(), held, "what `check` holds is not the daemon's to restore");
    taut.ok(["check", "host", "--undo"]);
    assert_eq!(settings.changed(), Vec::<&PathBuf>::new());
    assert!(!taut.dir().join("state/host-changes.json").exists(), "nothing is left to be undone");
    assert_eq!(taut.ok(["check", "host", "--undo"]), "nothing given back\n");
}
