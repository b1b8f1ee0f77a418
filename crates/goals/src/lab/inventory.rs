//! Inventory of what taut has of the host: processes, mounts, control groups, namespaces, huge
//! pages, interfaces, sockets and files. Two inventories show what was left behind in between.
//!
//! Items have names without numbers of processes, and each name has a count. So a fabric that
//! replaced another one is no difference, and a second one beside it is, whatever else has gone
//! meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::Lab;
use crate::machine::Command;
use crate::reason::{Measured, NotMeasured, require};

/// Programs of taut and of its VMs begin with one of these.
const OURS: [&str; 2] = ["taut", "qemu-system"];
/// Attempts to list what changes all the time.
const ATTEMPTS: usize = 20;
/// Column `State` of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// A kind of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Processes of the lab, and dead ones that nobody has waited for (zombies).
    Process,
    /// Mounts of this mount namespace.
    Mount,
    /// Control groups with `taut` in their path.
    ControlGroup,
    /// Namespaces that a process is in.
    Namespace,
    /// Huge pages: those that there are, those in use, and those that are reserved.
    HugePage,
    /// Network interfaces of this network namespace.
    Interface,
    /// Unix sockets with a name of the lab, and TCP sockets that listen.
    Socket,
    /// Files below the run and state folders of the lab's daemons, and shared memory.
    File,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Process,
        Self::Mount,
        Self::ControlGroup,
        Self::Namespace,
        Self::HugePage,
        Self::Interface,
        Self::Socket,
        Self::File,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Mount => "mount",
            Self::ControlGroup => "control group",
            Self::Namespace => "namespace",
            Self::HugePage => "huge page",
            Self::Interface => "interface",
            Self::Socket => "socket",
            Self::File => "file",
        }
    }
}

/// Items by kind and name, with the number of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory(BTreeMap<(Kind, String), u64>);

/// Items that are there once too often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surplus(BTreeMap<(Kind, String), u64>);

/// A process of the lab.
#[derive(Debug)]
struct Process {
    pid: u32,
    name: String,
    /// True if the process has ended and nobody has waited for it.
    is_dead: bool,
}

impl Inventory {
    fn add(&mut self, kind: Kind, name: impl Into<String>, count: u64) {
        if count > 0 {
            *self.0.entry((kind, name.into())).or_default() += count;
        }
    }

    /// Returns what is here and was not in `before`. Items that have gone do not make up for it.
    pub fn beyond(&self, before: &Self) -> Surplus {
        let more = self.0.iter().filter_map(|(item, &count)| {
            let had = before.0.get(item).copied().unwrap_or(0);
            (count > had).then(|| (item.clone(), count - had))
        });
        Surplus(more.collect())
    }

    /// Keeps the greater count of each item. An inventory that was widened by several others shows
    /// what was there at once at any of these moments, although it may have gone since.
    pub fn widen(&mut self, other: &Self) {
        for (item, &count) in &other.0 {
            let most = self.0.entry(item.clone()).or_default();
            *most = count.max(*most);
        }
    }

    /// Returns the number of items of a kind.
    pub fn count(&self, kind: Kind) -> u64 {
        self.0.iter().filter(|((of, _), _)| *of == kind).map(|(_, &count)| count).sum()
    }

    /// Leaves out items of a kind whose name begins so.
    #[must_use]
    pub fn without(mut self, kind: Kind, beginning: &str) -> Self {
        self.0.retain(|(of, name), _| *of != kind || !name.starts_with(beginning));
        self
    }
}

impl Surplus {
    /// Returns the number of items.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the number of items of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0.iter().filter(|((of, _), _)| *of == kind).map(|(_, &count)| count).sum()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Surplus {
    /// Lists the items, such as `process taut-fabric × 2, mount tmpfs /run/x`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (at, ((kind, name), count)) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            write!(f, "{} {name}", kind.name())?;
            if *count > 1 {
                write!(f, " × {count}")?;
            }
        }
        Ok(())
    }
}

impl Lab<'_> {
    /// Takes an inventory. Rows stop their own loads before: those are processes of the lab, too.
    pub fn inventory(&mut self) -> Measured<Inventory> {
        let mut found = Inventory::default();
        for Process { name, is_dead, .. } in self.processes()? {
            let name = if is_dead { format!("{name} (dead)") } else { name };
            found.add(Kind::Process, name, 1);
        }
        let mounts = self.read("/proc/self/mountinfo")?;
        mounts.lines().iter().filter_map(|line| mount(line)).for_each(|name| found.add(Kind::Mount, name, 1));
        let groups = Command::new("find").args("/sys/fs/cgroup -type d");
        for path in self.listed(&groups, "/sys/fs/cgroup")?.iter().filter(|path| path.contains("taut")) {
            found.add(Kind::ControlGroup, path, 1);
        }
        let namespaces = Command::new("lsns").args("-n -r -o TYPE,COMMAND");
        for line in self.listed(&namespaces, "mnt")? {
            let (kind, command) = line.split_once(' ').unwrap_or((&line, ""));
            found.add(Kind::Namespace, format!("{kind} of {}", program(command)), 1);
        }
        self.add_huge_pages(&mut found)?;
        for interface in self.machine.list(Path::new("/sys/class/net"))? {
            found.add(Kind::Interface, file_name(&interface), 1);
        }
        self.add_sockets(&mut found)?;
        self.add_files(&mut found)?;
        Ok(found)
    }

    /// Waits until nothing is there beyond an inventory, and returns what still is after so many
    /// seconds: programs that were asked to end need a moment.
    pub fn left_behind(&mut self, before: &Inventory, seconds: u64) -> Measured<Surplus> {
        let end = self.now() + std::time::Duration::from_secs(seconds);
        loop {
            let surplus = self.inventory()?.beyond(before);
            if surplus.is_empty() || self.now() >= end {
                return Ok(surplus);
            }
            self.sleep(0.1)?;
        }
    }

    /// Returns the processes of the lab with this name.
    pub fn processes_named(&mut self, name: &str) -> Measured<Vec<u32>> {
        let is_stand_in = self.machine.is_stand_in();
        let processes = self.processes()?;
        let named = processes.iter().filter(|process| process.name == name && !process.is_dead);
        let pids = named.map(|process| process.pid).collect();
        Ok(if is_stand_in { vec![1] } else { pids })
    }

    /// Lines of a program's output, of which one must have `part`.
    fn listed(&mut self, command: &Command, part: &str) -> Measured<Vec<String>> {
        // A folder may go while it is listed, which `find` takes for an error. `lsns` lists nothing
        // if a process ends while it is looked at.
        let mut ended = self.machine.run(command)?;
        for _ in 1..ATTEMPTS {
            if ended.stdout.contains(part) {
                break;
            }
            self.sleep(0.05)?;
            ended = self.machine.run(command)?;
        }
        require(ended.stdout.contains(part), format!("`{}` lists nothing", ended.command))?;
        Ok(ended.stdout.lines().into_iter().map(str::to_owned).collect())
    }

    /// Processes of the lab, by their mark, and dead ones of taut that nobody has waited for.
    fn processes(&mut self) -> Measured<Vec<Process>> {
        let mark = format!("{}/", self.folder.display());
        let own = std::process::id();
        let mut has_own = self.machine.is_stand_in();
        let mut found = Vec::new();
        for folder in self.machine.list(Path::new("/proc"))? {
            let Ok(pid) = file_name(&folder).parse::<u32>() else { continue };
            has_own |= pid == own;
            // Processes may end while they are listed.
            let Ok(stat) = self.machine.read(&folder.join("stat")) else { continue };
            let Some((name, state)) = name_and_state(stat.as_str()) else { continue };
            let mut says = |file: &str| {
                self.machine.read(&folder.join(file)).is_ok_and(|text| text.as_str().contains(&mark))
            };
            let is_dead = state == "Z" || state == "X";
            let is_ours = OURS.iter().any(|ours| name.starts_with(ours));
            if pid != own && (is_dead && is_ours || !is_dead && (says("environ") || says("cmdline"))) {
                found.push(Process { pid, name, is_dead });
            }
        }
        require(has_own, "/proc does not list this process")?;
        Ok(found)
    }

    fn add_huge_pages(&mut self, found: &mut Inventory) -> Measured<()> {
        for size in self.machine.list(Path::new("/sys/kernel/mm/hugepages"))? {
            let mut read = |file: &str| self.machine.read(&size.join(file))?.number();
            let [all, free] = [read("nr_hugepages")?, read("free_hugepages")?];
            let reserved = read("resv_hugepages")?;
            let name = file_name(&size);
            for (what, count) in [("there", all), ("in use", all - free), ("reserved", reserved)] {
                found.add(Kind::HugePage, format!("{name} {what}"), count.max(0.0) as u64);
            }
        }
        Ok(())
    }

    fn add_sockets(&mut self, found: &mut Inventory) -> Measured<()> {
        let mark = self.folder.display().to_string();
        for line in self.read("/proc/net/unix")?.lines() {
            let name = line.split_whitespace().skip(7).collect::<Vec<_>>().join(" ");
            if name.contains(&mark) || name.contains("taut") {
                found.add(Kind::Socket, name, 1);
            }
        }
        for file in ["tcp", "tcp6"] {
            let path = PathBuf::from("/proc/net").join(file);
            // A host may be without IPv6.
            let Ok(text) = self.machine.read(&path) else { continue };
            for line in text.lines() {
                let fields: Vec<&str> = line.split_whitespace().collect();
                if let [_, address, _, LISTENING, ..] = fields[..] {
                    found.add(Kind::Socket, format!("{file} {address}"), 1);
                }
            }
        }
        Ok(())
    }

    fn add_files(&mut self, found: &mut Inventory) -> Measured<()> {
        let daemons =
            self.daemons.iter().flat_map(|daemon| ["run", "state"].map(|at| daemon.folder.join(at)));
        let folders: Vec<PathBuf> = daemons.chain([PathBuf::from("/dev/shm")]).collect();
        for folder in folders {
            if !self.machine.exists(&folder) {
                continue;
            }
            let find = Command::new("find").arg(&folder).args("-printf").arg("%y %p\\n");
            let lines = self.listed(&find, &folder.display().to_string())?;
            for line in lines.into_iter().filter(|line| !is_rotated(line)) {
                found.add(Kind::File, line, 1);
            }
        }
        Ok(())
    }
}

/// Tells whether a file is an older part of a log, such as `audit.log.1`. Their number is bounded.
fn is_rotated(path: &str) -> bool {
    path.rsplit_once(".log.").is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Name and state of a process in its `stat`.
fn name_and_state(stat: &str) -> Option<(String, &str)> {
    let (before, after) = stat.rsplit_once(')')?;
    Some((before.split_once('(')?.1.to_owned(), after.split_whitespace().next()?))
}

/// Folder of named network namespaces. Whoever makes the first one since the host has booted mounts
/// the folder over itself, as `ip netns add` does, and it stays: others may use it. Namespaces in
/// it are mounts of their own.
const NAMESPACES: &str = "/run/netns";

/// Type and place of a mount in a line of `mountinfo`, unless it is [`NAMESPACES`].
fn mount(line: &str) -> Option<String> {
    let (mount, kind) = line.split_once(" - ")?;
    let place = mount.split(' ').nth(4).filter(|place| *place != NAMESPACES)?;
    Some(format!("{} {place}", kind.split(' ').next()?))
}

/// Name of the program in a command line as `lsns` prints it.
fn program(command: &str) -> &str {
    let first = command.split(['\\', ' ']).next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or(first)
}

/// Requires that an inventory has items of each of these kinds: one that lists none of them has not
/// looked at the right place.
pub fn require_some(inventory: &Inventory, kinds: &[Kind]) -> Measured<()> {
    let missing = kinds.iter().find(|kind| inventory.count(**kind) == 0);
    missing.map_or(Ok(()), |kind| Err(NotMeasured::because(format!("the inventory has no {}", kind.name()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(items: &[(Kind, &str, u64)]) -> Inventory {
        let mut found = Inventory::default();
        for (kind, name, count) in items {
            found.add(*kind, *name, *count);
        }
        found
    }

    #[test]
    fn what_has_gone_does_not_make_up_for_what_was_added() {
        let before = of(&[(Kind::Process, "tautd", 1), (Kind::Process, "taut-fabric", 1)]);
        let after = of(&[(Kind::Process, "taut-fabric", 3), (Kind::Mount, "tmpfs /x", 1)]);
        let surplus = after.beyond(&before);
        assert_eq!(surplus.count(), 3);
        assert_eq!(surplus.of(Kind::Process), 2);
        assert_eq!(surplus.to_string(), "process taut-fabric × 2, mount tmpfs /x");
        assert!(before.beyond(&before).is_empty());
    }

    #[test]
    fn what_came_and_went_in_between_is_seen() {
        let before = of(&[(Kind::Process, "taut-fabric", 1)]);
        let mut most = before.clone();
        most.widen(&of(&[(Kind::Process, "taut-fabric", 190)]));
        most.widen(&before);
        assert_eq!(most.beyond(&before).count(), 189);
    }

    #[test]
    fn items_are_named_without_numbers() {
        assert_eq!(name_and_state("7 (a) b) Z 1 7"), Some(("a) b".to_owned(), "Z")));
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(mount(line).as_deref(), Some("ext3 /mnt2"));
        assert_eq!(mount(&line.replace("/mnt2", "/run/netns")), None);
        assert!(mount(&line.replace("/mnt2", "/run/netns/x")).is_some());
        assert_eq!(program("/usr/bin/qemu-system-x86_64\\x20-name"), "qemu-system-x86_64");
    }

    #[test]
    fn an_inventory_without_a_kind_is_refused() {
        let found = of(&[(Kind::Mount, "proc /proc", 1)]);
        assert!(require_some(&found, &[Kind::Mount]).is_ok());
        assert!(require_some(&found, &[Kind::Mount, Kind::Process]).is_err());
    }
}
