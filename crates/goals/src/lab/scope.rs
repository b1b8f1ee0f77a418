//! A cpuset of this program and all that it starts. Only that cpuset makes room for exclusive
//! pCPUs; other programs on this machine stay where they are.

use std::path::{Path, PathBuf};

use super::Lab;
use crate::machine::Machine;
use crate::reason::{Measured, require};

const PARENT: &str = "/sys/fs/cgroup/cpuset";

/// Path of the cpuset of the process `owner`.
pub(super) fn of(owner: &str) -> PathBuf {
    Path::new(PARENT).join(format!("taut-goal-{owner}"))
}

impl Lab<'_> {
    /// Moves this program, and whatever it starts, into a cpuset of its own. Fails on a host with
    /// one pCPU or without cpusets of cgroup v1.
    pub fn enter_scope(&mut self) -> Measured<()> {
        let parent = Path::new(PARENT);
        let cpus = std::thread::available_parallelism()?.get();
        let has_cpusets = self.machine.exists(&parent.join("cpuset.cpus"));
        require(cpus >= 2 && has_cpusets, "it takes two pCPUs and cpusets of cgroup v1")?;
        let own = std::process::id().to_string();
        let scope = of(&own);
        self.machine.make_folder(&scope)?;
        self.scope = Some(scope.clone());
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let text = self.machine.read(&parent.join(file))?;
            self.machine.write(&scope.join(file), text.as_str())?;
        }
        self.machine.write(&scope.join("cgroup.procs"), &own)
    }

    /// Path of the cpuset, if this program is in one.
    pub fn scope(&self) -> Option<&Path> {
        self.scope.as_deref()
    }

    /// Moves everything out of the cpuset and removes it.
    pub fn leave_scope(&mut self) -> Measured<()> {
        match self.scope.take() {
            Some(scope) => empty(self.machine, &scope),
            None => Ok(()),
        }
    }
}

/// Moves everything out of a cpuset and those below it, and removes them.
pub(super) fn empty(machine: &mut dyn Machine, scope: &Path) -> Measured<()> {
    if !machine.exists(scope) {
        return Ok(());
    }
    for entry in machine.list(scope)? {
        if machine.exists(&entry.join("tasks")) {
            empty(machine, &entry)?;
        }
    }
    let root = Path::new(PARENT).join("tasks");
    for _ in 0..50 {
        if let Ok(tasks) = machine.read(&scope.join("tasks")) {
            for task in tasks.lines() {
                // A task may have ended meanwhile.
                let _ = machine.write(&root, task);
            }
        }
        if machine.remove(scope).is_ok() || !machine.exists(scope) {
            return Ok(());
        }
        machine.sleep(std::time::Duration::from_millis(20))?;
    }
    machine.remove(scope)
}
