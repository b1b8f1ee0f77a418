//! Folders of control groups: files in them are the kernel's, and go with the folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Programs start others while they are moved: how often a group is looked at again.
const SWEEPS: usize = 20;

/// Writes unless it is so already.
pub(crate) fn put(path: &Path, value: &str) -> io::Result<()> {
    let before = fs::read_to_string(path).unwrap_or_default();
    if before.trim_end() == value { Ok(()) } else { fs::write(path, value) }
}

/// Who is in a group, by one of its files of numbers: `cgroup.procs`, or `tasks` and `cgroup.threads` thread by thread.
pub(crate) fn members(dir: &Path, file: &str) -> BTreeSet<u32> {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Moves everybody who can be moved, each into the first of these groups that takes it.
pub(crate) fn move_all(from: &Path, file: &str, homes: &[&Path]) {
    let mut stuck = BTreeSet::new();
    for _ in 0..SWEEPS {
        let there: Vec<u32> = members(from, file).difference(&stuck).copied().collect();
        if there.is_empty() {
            return;
        }
        for number in there {
            let taken = |home: &&Path| fs::write(home.join(file), number.to_string()).is_ok();
            if !homes.iter().any(taken) {
                stuck.insert(number);
            }
        }
    }
}

/// Moves everybody out and removes the group. One that is not there is no error.
///
/// # Errors
/// The kernel's, when somebody stays in it: it is to be tried again.
pub(crate) fn dissolve(dir: &Path, file: &str, homes: &[&Path]) -> io::Result<()> {
    for _ in 0..SWEEPS {
        if !dir.exists() {
            return Ok(());
        }
        move_all(dir, file, homes);
        if remove(dir).is_ok() {
            return Ok(());
        }
        // A task that is ending is not in the list any more, and holds it up for a moment.
        thread::sleep(Duration::from_millis(1));
    }
    if dir.exists() { remove(dir) } else { Ok(()) }
}

/// Removes a group that nobody is in.
#[cfg(not(test))]
fn remove(dir: &Path) -> io::Result<()> {
    fs::remove_dir(dir)
}

/// In a folder that plays a group the files have to go first, unless it has a group below it.
#[cfg(test)]
fn remove(dir: &Path) -> io::Result<()> {
    let inner = fs::read_dir(dir)?.flatten().any(|entry| entry.path().is_dir());
    if inner { fs::remove_dir(dir) } else { fs::remove_dir_all(dir) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_goes_to_the_first_group_that_takes_them() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for group in ["vm", "home"] {
            fs::create_dir(at(group)).unwrap();
        }
        fs::write(at("vm/tasks"), "77\n").unwrap();
        // The first one has gone.
        dissolve(&at("vm"), "tasks", &[&at("gone"), &at("home")]).unwrap();
        assert_eq!((members(&at("home"), "tasks"), at("vm").exists()), ([77].into(), false));
        dissolve(&at("vm"), "tasks", &[]).unwrap();
    }

    #[test]
    fn a_group_that_somebody_holds_is_removed_when_they_have_gone() {
        let root = tempfile::tempdir().unwrap();
        let (dir, inner) = (root.path().join("vm"), root.path().join("vm/inner"));
        fs::create_dir_all(&inner).unwrap();
        assert!(dissolve(&dir, "tasks", &[root.path()]).is_err() && dir.exists());
        let held = inner.clone();
        let goes = thread::spawn(move || fs::remove_dir(held));
        // As a task does that ends meanwhile.
        while dissolve(&dir, "tasks", &[root.path()]).is_err() {}
        goes.join().unwrap().unwrap();
        assert!(!dir.exists());
    }
}
