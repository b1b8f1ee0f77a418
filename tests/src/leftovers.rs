//! Directories of tests, and removal of what tests left behind whose process was killed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use crate::{alive, bin_dir, daemon, process};

const PREFIX: &str = "taut-test-";

/// Names this process by number and start time, because numbers are used again.
pub fn owner() -> String {
    let own = std::process::id();
    format!("{own}.{}", began(own).expect("this process is there"))
}

/// Returns true if the owner that follows `taut-test-` in this name is a process that is gone. More
/// may follow the owner after a `-`.
pub fn is_left_over(name: &OsStr) -> bool {
    let named = || {
        let owner = name.to_str()?.strip_prefix(PREFIX)?;
        let (pid, start) = owner.split('-').next()?.split_once('.')?;
        Some((pid.parse().ok()?, start.parse().ok()?))
    };
    named().is_some_and(|(pid, start)| began(pid) != Some(start))
}

/// Makes a directory for a test. The first call removes what dead processes left.
pub fn directory() -> TempDir {
    clear_away();
    TempDir::with_prefix(format!("{PREFIX}{}-", owner())).expect("a temporary directory")
}

/// Removes what killed tests left: daemons and their changes of the host, processes, mounts,
/// namespaces, directories. It does so once per process.
pub fn clear_away() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
        entries.filter(|entry| is_left_over(&entry.file_name())).for_each(|entry| clear(&entry.path()));
    });
}

/// Returns the start time of a process in clock ticks after boot.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

// A leftover that cannot be removed stays: a test that depends on it fails by itself.
fn clear(dir: &Path) {
    eprintln!("clearing away {}, whose tests were killed", dir.display());
    end_daemon(dir);
    let processes = process::of_directory(dir);
    for &pid in &processes {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    until(|| !processes.iter().any(|&pid| alive(pid)));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let targets = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
    for target in targets.filter(|target| Path::new(target).starts_with(dir)) {
        let _ = Command::new("umount").arg(target).status();
    }
    let name = dir.file_name().and_then(OsStr::to_str).unwrap_or_default();
    for namespace in entries("/run/netns") {
        let file = namespace.file_name().unwrap_or_default();
        if file.to_str().is_some_and(|file| file.starts_with(name)) {
            let _ = Command::new("ip").args([OsStr::new("netns"), OsStr::new("del"), file]).status();
        }
    }
    for controller in entries("/sys/fs/cgroup") {
        let _ = fs::remove_dir(controller.join(name));
    }
    let _ = fs::remove_dir_all(dir);
}

/// Ends the directory's daemon with all its VMs, and restores the host. If that daemon is dead, a
/// new one on the same directories does both.
fn end_daemon(dir: &Path) {
    let taut = |args: &[&str]| {
        let mut command = Command::new(bin_dir().join("taut"));
        let done = command.arg("--socket").arg(dir.join("run/tautd.sock")).args(args).output();
        done.is_ok_and(|output| output.status.success())
    };
    let answers = || taut(&["daemon", "show"]);
    let mut next = None;
    if dir.join("state/host-changes.json").exists() && !answers() {
        let owner = dir.file_name().and_then(OsStr::to_str).and_then(|name| name.rsplit_once('-'));
        let cpuset = Path::new("/sys/fs/cgroup/cpuset").join(owner.map_or("", |(owner, _)| owner));
        let cpuset = cpuset.to_str().expect("it was text");
        next = Some(daemon::spawn(dir, &["--cpuset", cpuset], []));
        until(answers);
    }
    // The ledger is named explicitly: without a daemon the default would be this host's own.
    let state = dir.join("state");
    taut(&["check", "host", "--undo", "--state-dir", state.to_str().expect("temporary paths are text")]);
    taut(&["shutdown", "--everything"]);
    if let Some(mut next) = next {
        until(|| !matches!(next.try_wait(), Ok(None)));
    }
}

/// Waits for a condition, for half a minute at most.
fn until(mut so: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if so() {
            return;
        }
        sleep(Duration::from_millis(20));
    }
}

fn entries(folder: &str) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_processes_count_as_left_over() {
        let mine = format!("{PREFIX}{}", owner());
        let of = |name: &str| is_left_over(OsStr::new(name));
        assert!(!of(&mine) && !of(&format!("{mine}-Ab12")));
        assert!(of(&format!("{PREFIX}{}.1-Ab12", std::process::id())), "another process with its number");
        assert!(of(&format!("{PREFIX}{}.1", u32::MAX)));
        assert!(!of("taut-test-Ab12Cd") && !of("taut-lab.1.1.Ab12") && !of("taut-test-"));
    }
}
