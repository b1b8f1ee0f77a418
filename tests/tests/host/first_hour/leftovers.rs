//! What remains when everything was shut down is what the guide names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use taut_tests::{Netns, Taut};

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn files_that_remain_after_a_shutdown_are_those_of_the_guide() {
    let mut taut = Taut::start().with_lan();
    taut.boot("m", &crate::micro::micro("10.71.0.1"));
    let probe = Netns::attach(&taut, "probe", "lan", "10.71.0.9");
    taut.shut_down();
    assert!(!probe.exists());
    let guide =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/operations.md")).unwrap();
    for folder in ["state", "run", "log"] {
        for name in names(&taut.dir().join(folder)) {
            let told = if name == "vms" { "`vms/NAME`".to_owned() } else { format!("`{name}`") };
            assert!(guide.contains(&told), "operations.md does not name {folder}/{name}");
        }
    }
    assert_eq!(names(&taut.dir().join("run/vms/m")), BTreeSet::new());
    assert_eq!(names(&taut.dir().join("log/vms/m")), BTreeSet::from(["vm.log".to_owned()]));
    // Whoever was on starts again.
    taut.restart_daemon();
    taut_tests::eventually("the VM runs again", || {
        (taut.json(["vm", "show", "m"])["status"]["phase"] == "running").then_some(())
    });
}
