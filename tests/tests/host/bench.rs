//! Errors of experiments that cannot run here.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use taut_tests::Taut;

use crate::micro::micro;

/// A cgroup v1 group without real-time, where the kernel shares real-time among groups.
struct Group(PathBuf);

impl Group {
    fn new(taut: &Taut) -> Option<Self> {
        let all = PathBuf::from("/sys/fs/cgroup/cpu");
        if !all.join("cpu.rt_runtime_us").exists() {
            return None;
        }
        let group = Self(all.join(taut.dir().file_name().unwrap()));
        fs::create_dir(&group.0).unwrap();
        Some(group)
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
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.1"));
    let Some(group) = Group::new(&taut) else { return };
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
