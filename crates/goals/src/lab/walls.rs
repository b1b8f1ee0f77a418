//! Walls around a process, as `/proc` shows them while it runs.

use std::path::Path;

use super::Lab;
use crate::machine::Command;
use crate::reason::{Measured, require};

/// Sets of capabilities in `/proc/PID/status`.
const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
/// Namespaces that a confined process has for itself.
const NAMESPACES: [&str; 6] = ["mnt", "net", "ipc", "uts", "pid", "cgroup"];

/// Walls around a process.
#[derive(Debug, Clone)]
pub struct Walls {
    /// Name of the program.
    pub program: String,
    /// Its user.
    pub user: String,
    /// Its group.
    pub group: String,
    /// Walls that were looked for.
    pub wanted: usize,
    /// Those that it lacks.
    pub missing: Vec<String>,
}

impl Walls {
    /// Adds a wall.
    pub fn check(&mut self, wall: &str, is_there: bool) {
        self.wanted += 1;
        if !is_there {
            self.missing.push(wall.to_owned());
        }
    }

    /// Share of the walls that are there, in percent.
    pub fn percent(&self) -> f64 {
        100.0 * (self.wanted - self.missing.len()) as f64 / self.wanted as f64
    }
}

impl Lab<'_> {
    /// Reads the walls of a process that runs a program whose name begins so. Namespaces must
    /// differ from those of the current daemon.
    pub fn walls_of(&mut self, pid: u32, program: &str) -> Measured<Walls> {
        let daemon = self.daemon()?.job.pid;
        let folder = format!("/proc/{pid}");
        let status = self.read(format!("{folder}/status"))?;
        let field = |name: &str| status.between(&format!("{name}:\t"), "");
        let name = field("Name")?;
        let is_granted = self.machine.takes_for_granted();
        require(name.starts_with(program) || is_granted, format!("process {pid} is {name}, not {program}"))?;
        let one = |ids: &str| {
            let mut ids = ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            ids.dedup();
            if ids.len() == 1 { ids.pop() } else { None }
        };
        let (user, group) = (one(&field("Uid")?), one(&field("Gid")?));
        let known = |id: &Option<String>| id.as_ref().is_some_and(|id| id != "0");
        let mut walls = Walls {
            program: name,
            user: user.clone().unwrap_or_default(),
            group: group.clone().unwrap_or_default(),
            wanted: 0,
            missing: Vec::new(),
        };
        walls.check("user", known(&user));
        walls.check("group", known(&group));
        walls.check("no other groups", field("Groups")?.is_empty());
        for set in SETS {
            let text = field(set)?;
            walls.check(set, !text.is_empty() && text.bytes().all(|digit| digit == b'0'));
        }
        walls.check("NoNewPrivs", field("NoNewPrivs")? == "1");
        walls.check("Seccomp", field("Seccomp")? == "2");
        for namespace in NAMESPACES {
            let links = [pid, daemon].map(|pid| format!("/proc/{pid}/ns/{namespace}"));
            let text = self.run(&Command::new("readlink").args(links.to_vec()))?.stdout;
            let beginning = format!("{namespace}:[");
            let [own, other] = text.lines()[..] else {
                require(is_granted, format!("the namespace {namespace} of process {pid} cannot be read"))?;
                walls.check(namespace, false);
                continue;
            };
            require(
                [own, other].iter().all(|link| link.starts_with(&beginning)),
                format!("`{own}` and `{other}` are no namespaces"),
            )?;
            walls.check(namespace, own != other);
        }
        // Otherwise another process may have got its number meanwhile.
        let is_there = self.machine.exists(&Path::new(&folder).join("exe"));
        require(is_there, format!("the process {pid} ended while it was looked at"))?;
        Ok(walls)
    }
}
