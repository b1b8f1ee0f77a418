//! Walls around a process, as `/proc` shows them.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

/// Namespaces that a confined process has for itself.
const NAMESPACES: [&str; 6] = ["mnt", "net", "ipc", "uts", "pid", "cgroup"];

/// Walls around a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WallsSeen {
    /// Real user and group.
    pub user: (u32, u32),
    /// Its supplementary groups.
    pub groups: BTreeSet<u32>,
    /// Every set of capabilities is empty.
    pub has_no_capabilities: bool,
    /// It cannot gain privileges by starting a program.
    pub no_new_privileges: bool,
    /// Mode of its system call filter: 2 for a program of rules.
    pub seccomp: u32,
    /// Number of filters: the launcher's, and those that the program adds.
    pub filters: u32,
    /// Namespaces that it shares with this process.
    pub shared_namespaces: BTreeSet<&'static str>,
}

/// Returns the walls that a VM's status names as missing, but those that kernels before Linux 6.12
/// do not have.
pub fn missing_walls(status: &Value) -> Vec<&str> {
    let missing = status["confinement"]["missing"].as_array().into_iter().flatten();
    missing.filter_map(Value::as_str).filter(|wall| !wall.starts_with("landlock_")).collect()
}

impl WallsSeen {
    /// Reads the walls of a process.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn of(pid: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
        };
        let first = |name: &str| field(name).split_whitespace().next().unwrap_or_default().parse().unwrap();
        let sets = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"];
        let namespace = |pid: &str, name: &str| {
            fs::read_link(format!("/proc/{pid}/ns/{name}")).expect("root may read it")
        };
        let number = pid.to_string();
        Self {
            user: (first("Uid:"), first("Gid:")),
            groups: field("Groups:").split_whitespace().map(|group| group.parse().unwrap()).collect(),
            has_no_capabilities: sets.iter().all(|set| field(set).bytes().all(|digit| digit == b'0')),
            no_new_privileges: field("NoNewPrivs:") == "1",
            seccomp: first("Seccomp:"),
            filters: first("Seccomp_filters:"),
            shared_namespaces: NAMESPACES
                .into_iter()
                .filter(|name| namespace(&number, name) == namespace("self", name))
                .collect(),
        }
    }

    /// Asserts that all walls are there, and returns the user.
    ///
    /// # Panics
    /// When a wall is missing.
    pub fn assert_complete(&self) -> u32 {
        let (user, group) = self.user;
        assert!(user != 0 && user == group && self.groups.is_empty(), "{self:?}");
        assert!(self.has_no_capabilities && self.no_new_privileges, "{self:?}");
        assert!(self.seccomp == 2 && self.shared_namespaces.is_empty(), "{self:?}");
        user
    }
}
