//! Experiments that cannot be carried out say why.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use taut_tests::Taut;

use crate::micro::micro;

/// A control group of cgroup v1 that has no real-time, where the kernel shares that out.
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
        // Nobody is left in it.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_control_group_without_real_time_is_named_to_whoever_needs_it() {
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
