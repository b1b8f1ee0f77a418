//! The reason of a VM's failure, for its user: how its process ended, and its last words.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;

use taut_api::Name;

/// Maximum number of bytes at the end of a log that are read.
const LOG_READ: usize = 64 << 10;
/// Maximum number of bytes of a log's end that become part of a failure's reason.
const LOG_TAIL: usize = 1000;
/// QEMU prints a line with these words for each socket that it opens.
const HARMLESS: &str = ": info: QEMU waiting for connection on: ";
/// QEMU's name for the image that a disk names.
const DESCRIPTOR: &str = "/dev/fdset/1";
/// QEMU prints the name of a locked image after these words, in brackets.
const LOCKED: &str = "Is another process using the image [";

/// The end of a VM's process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending<'a> {
    pub(super) pid: u32,
    /// Exit status, if the kernel told it.
    pub(super) status: Option<ExitStatus>,
    /// The process ended before this daemon started.
    pub(super) while_away: bool,
    /// Path of its disk.
    pub(super) disk: Option<&'a str>,
}

/// Returns the reason of a failure. `log` is that of the process. `holder` returns the other VM
/// that has the same disk.
pub(super) fn describe(ending: Ending<'_>, log: &Path, holder: impl FnOnce() -> Option<Name>) -> String {
    let mut log = last_words(log);
    if let Some(disk) = ending.disk {
        log = named(&log, disk);
    }
    let mut reason = String::new();
    if let Some(disk) = locked_disk(&log) {
        reason = match holder() {
            Some(vm) => format!("its disk {disk} is in use by VM `{vm}`; "),
            None => format!("its disk {disk} is in use by another process; "),
        };
    }
    reason += &how(ending);
    if !log.is_empty() {
        reason += "; it said: ";
        reason += tail(&log);
    }
    reason
}

/// Replaces QEMU's name for the image that a disk names by its path, and no longer name.
fn named(log: &str, disk: &str) -> String {
    let mut parts = log.split(DESCRIPTOR);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_longer = part.starts_with(|next: char| next.is_ascii_digit());
        text.push_str(if is_longer { DESCRIPTOR } else { disk });
        text.push_str(part);
    }
    text
}

fn how(ending: Ending<'_>) -> String {
    let Ending { pid, status, while_away, .. } = ending;
    let ended =
        format!("its process {pid} ended{}", if while_away { " while the daemon was away" } else { "" });
    match status {
        Some(status) => format!("{ended} with {status}"),
        None => format!("{ended}; its exit status is not known"),
    }
}

/// Returns the end of a process's log without the lines that QEMU prints in any case.
fn last_words(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
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

    fn log(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("vm.log");
        fs::write(&log, text).unwrap();
        (dir, log)
    }

    fn ending(status: Option<ExitStatus>) -> Ending<'static> {
        Ending { pid: 7, status, while_away: false, disk: Some("/d.qcow2") }
    }

    #[test]
    fn the_lock_error_comes_first_and_names_the_vm() {
        let waits = "qemu: -chardev x: info: QEMU waiting for connection on: disconnected:unix:a,server=on";
        let error = "qemu: -drive x: Failed to get \"write\" lock";
        let question = |name: &str| format!("Is another process using the image [{name}]?");
        let (_dir, log) = log(&format!("{waits}\n{error}\n{}\n", question("/dev/fdset/1")));
        let question = question("/d.qcow2");
        let status = <ExitStatus as std::os::unix::process::ExitStatusExt>::from_raw(1 << 8);
        let asked = std::cell::Cell::new(false);
        let reason = describe(ending(Some(status)), &log, || {
            asked.set(true);
            Some("db1".parse().unwrap())
        });
        let first = "its disk /d.qcow2 is in use by VM `db1`; its process 7 ended with exit status: 1";
        assert_eq!(reason, format!("{first}; it said: {error}\n{question}"));
        assert!(asked.get());
        assert!(describe(ending(Some(status)), &log, || None).contains("in use by another process"));
    }

    #[test]
    fn a_long_log_is_cut_at_a_character() {
        let (_dir, log) = log(&"é".repeat(LOG_TAIL));
        let reason = describe(ending(None), &log, || unreachable!("the log names no disk"));
        let words = reason.split_once("it said: ").unwrap().1;
        assert_eq!(words.len(), LOG_TAIL);
    }

    #[test]
    fn an_unknown_exit_status_is_told() {
        let (_dir, log) = log("");
        let told = describe(ending(None), &log, || None);
        assert_eq!(told, "its process 7 ended; its exit status is not known");
    }
}
