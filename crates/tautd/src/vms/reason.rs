//! The reason of a VM's failure, for its user: how its process ended, and its last words.

use std::fs;
use std::process::ExitStatus;

use taut_api::Name;
use taut_api::vm::VmKind;
use taut_plan::Desired;
use taut_vm::launch::RunPaths;

/// Maximum number of bytes at the end of a log that are read.
const LOG_READ: usize = 64 << 10;
/// Maximum number of bytes of a log's end that become part of a failure's reason.
const LOG_TAIL: usize = 1000;
/// QEMU prints a line with these words for each socket that it opens.
const HARMLESS: &str = ": info: QEMU waiting for connection on: ";
/// QEMU prints the path of a locked image after these words, in brackets.
const LOCKED: &str = "Is another process using the image [";

/// The end of a VM's process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub(super) pid: u32,
    pub(super) kind: VmKind,
    /// Exit status, if the kernel told it.
    pub(super) status: Option<ExitStatus>,
    /// The process ended before this daemon started.
    pub(super) while_away: bool,
}

/// Returns the reason of a failure. `holder` returns the VM that has a disk open.
pub(super) fn describe(
    ending: Ending,
    paths: &RunPaths,
    holder: impl FnOnce(&str) -> Option<Name>,
) -> String {
    let log = last_words(paths);
    let mut reason = String::new();
    if let Some(disk) = locked_disk(&log) {
        reason = match holder(disk) {
            Some(vm) => format!("its disk {disk} is in use by VM `{vm}`; "),
            None => format!("its disk {disk} is in use by another process; "),
        };
    }
    reason += &how(ending, paths);
    if !log.is_empty() {
        reason += "; it said: ";
        reason += tail(&log);
    }
    reason
}

/// Returns the name of a running VM, other than `name`, whose document names this disk.
pub(super) fn holder<'a>(
    desired: &Desired,
    mut running: impl Iterator<Item = &'a Name>,
    name: &Name,
    disk: &str,
) -> Option<Name> {
    let real = |path: &str| fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let disk = real(disk);
    let has_it = |vm: &Name| {
        let spec = desired.vms.get(vm).and_then(|vm| vm.vm.disk.as_ref());
        spec.is_some_and(|spec| real(&spec.path) == disk)
    };
    running.find(|vm| *vm != name && has_it(vm)).cloned()
}

fn how(ending: Ending, paths: &RunPaths) -> String {
    let Ending { pid, kind, status, while_away } = ending;
    let ended =
        format!("its process {pid} ended{}", if while_away { " while the daemon was away" } else { "" });
    match status {
        Some(status) => format!("{ended} with {status}"),
        // QEMU removes its sockets when it ends in an orderly way.
        None if kind == VmKind::Qemu && paths.qmp().exists() => {
            format!("{ended} and left its sockets, so it was killed or crashed; its exit status is not known")
        }
        None => format!("{ended}; its exit status is not known"),
    }
}

/// Returns the end of a process's log without the lines that QEMU prints in any case.
fn last_words(paths: &RunPaths) -> String {
    let log = fs::read(paths.log()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_READ)..]);
    let lines: Vec<&str> = log.trim().lines().filter(|line| !line.contains(HARMLESS)).collect();
    lines.join("\n")
}

fn tail(log: &str) -> &str {
    let start = log.len().saturating_sub(LOG_TAIL);
    let start = (start..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
    &log[start..]
}

/// Returns the path of the disk that QEMU could not lock.
fn locked_disk(log: &str) -> Option<&str> {
    let (_, rest) = log.rsplit_once(LOCKED)?;
    rest.split_once("]?").map(|(path, _)| path)
}

#[cfg(test)]
mod first_hour {
    use super::*;

    fn paths(log: &str) -> (tempfile::TempDir, RunPaths) {
        let dir = tempfile::tempdir().unwrap();
        let paths = RunPaths::new(dir.path().to_owned());
        fs::write(paths.log(), log).unwrap();
        (dir, paths)
    }

    fn ending(status: Option<ExitStatus>) -> Ending {
        Ending { pid: 7, kind: VmKind::Qemu, status, while_away: false }
    }

    #[test]
    fn the_lock_error_comes_first_and_names_the_vm() {
        let waits = "qemu: -chardev x: info: QEMU waiting for connection on: disconnected:unix:a,server=on";
        let error = "qemu: -drive x: Failed to get \"write\" lock";
        let question = "Is another process using the image [/d.qcow2]?";
        let (_dir, paths) = paths(&format!("{waits}\n{error}\n{question}\n"));
        let status = <ExitStatus as std::os::unix::process::ExitStatusExt>::from_raw(1 << 8);
        let asked = std::cell::Cell::new(false);
        let reason = describe(ending(Some(status)), &paths, |disk| {
            asked.set(disk == "/d.qcow2");
            Some("db1".parse().unwrap())
        });
        let first = "its disk /d.qcow2 is in use by VM `db1`; its process 7 ended with exit status: 1";
        assert_eq!(reason, format!("{first}; it said: {error}\n{question}"));
        assert!(asked.get());
        assert!(describe(ending(Some(status)), &paths, |_| None).contains("in use by another process"));
    }

    #[test]
    fn a_long_log_is_cut_at_a_character() {
        let (_dir, paths) = paths(&"é".repeat(LOG_TAIL));
        let reason = describe(ending(None), &paths, |_| unreachable!("the log names no disk"));
        let words = reason.split_once("it said: ").unwrap().1;
        assert_eq!(words.len(), LOG_TAIL);
    }

    #[test]
    fn sockets_that_are_left_tell_of_a_violent_end() {
        let (_dir, paths) = paths("");
        let told = || describe(ending(None), &paths, |_| None);
        assert_eq!(told(), "its process 7 ended; its exit status is not known");
        fs::write(paths.qmp(), "").unwrap();
        let killed = "its process 7 ended and left its sockets, so it was killed or crashed";
        assert_eq!(told(), format!("{killed}; its exit status is not known"));
    }
}
