//! Errors of experiments that cannot run here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use taut_tests::{Prerequisite, Taut, require};

use crate::micro::micro;

/// A cgroup v1 group without real-time, where the kernel shares real-time among groups.
struct Group(PathBuf);

impl Group {
    fn new(taut: &Taut) -> Self {
        let group = Self(Path::new("/sys/fs/cgroup/cpu").join(taut.dir().file_name().unwrap()));
        fs::create_dir(&group.0).unwrap();
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is empty.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_missing_real_time_budget_is_reported_with_its_control_group() {
    if !require(Prerequisite::RealTimeGroups) {
        return;
    }
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.1"));
    let group = Group::new(&taut);
    let inside = taut.command();
    let output = Command::new("sh")
        .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
        .arg(&group.0)
        .arg(inside.get_program())
        .args(inside.get_args())
        .args(["bench", "neighbours", "host", "m1", "--beside", "m1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    let file = group.0.join("cpu.rt_runtime_us");
    for part in ["the agent of host ", &format!("{} is 0\n", file.display()), "\nhint: "] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}
