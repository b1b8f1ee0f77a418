//! The reason of a VM's failure, for its user: how its process ended, and its last words.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;

use taut_api::Name;

use super::record::ImageFile;

/// Maximum number of bytes at the end of a log that are read.
const LOG_READ: usize = 64 << 10;
/// Maximum number of bytes of a log's end that become part of a failure's reason.
const LOG_TAIL: usize = 1000;
/// QEMU prints a line with these words for each socket that it opens.
const HARMLESS: &str = ": info: QEMU waiting for connection on: ";
/// Beginning of QEMU's names for the images of a disk. Their numbers follow, from 1 on.
const DESCRIPTOR: &str = "/dev/fdset/";
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
    /// Images of its disk, as recorded.
    pub(super) images: &'a [ImageFile],
}

/// Returns the reason of a failure. `log` is that of the process. `holder` returns the
/// other VM that has an image.
pub(super) fn describe(ending: Ending<'_>, log: &Path, holder: impl FnOnce(&str) -> Option<Name>) -> String {
    let log = named(&last_words(log), ending.images);
    let mut reason = String::new();
    if let Some(image) = locked_image(&log) {
        let is_disk = ending.images.first().is_none_or(|disk| disk.name == image);
        let what = if is_disk { "disk" } else { "base image" };
        let by = holder(image).map_or("another process".to_owned(), |vm| format!("VM `{vm}`"));
        reason = format!("its {what} {image} is in use by {by}; ");
    }
    reason += &how(ending);
    if !log.is_empty() {
        reason += "; it said: ";
        reason += tail(&log);
    }
    reason
}

/// Replaces QEMU's names for the images of a disk by those of their files.
fn named(log: &str, images: &[ImageFile]) -> String {
    let mut parts = log.split(DESCRIPTOR);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let image = number.parse::<usize>().ok().and_then(|number| images.get(number.checked_sub(1)?));
        match image {
            Some(image) => text.extend([image.name.as_str(), rest]),
            None => text.extend([DESCRIPTOR, part]),
        }
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

/// Returns the name of the image that QEMU could not lock.
fn locked_image(log: &str) -> Option<&str> {
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

    fn ending(status: Option<ExitStatus>, images: &[ImageFile]) -> Ending<'_> {
        Ending { pid: 7, status, while_away: false, images }
    }

    fn db1() -> Name {
        "db1".parse().unwrap()
    }

    fn images() -> [ImageFile; 2] {
        ["/d.qcow2", "/base.qcow2"].map(|name| ImageFile { name: name.to_owned(), file: None })
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
        let reason = describe(ending(Some(status), &images()), &log, |disk| {
            asked.set(disk == "/d.qcow2");
            Some(db1())
        });
        let first = "its disk /d.qcow2 is in use by VM `db1`; its process 7 ended with exit status: 1";
        assert_eq!(reason, format!("{first}; it said: {error}\n{question}"));
        assert!(asked.get());
        assert!(
            describe(ending(Some(status), &images()), &log, |_| None).contains("in use by another process")
        );
    }

    #[test]
    fn images_have_the_names_of_their_files() {
        let said = "qemu: /dev/fdset/12, /dev/fdset/x, /dev/fdset/0: no\nCould not open '/dev/fdset/2'";
        let told = named(said, &images());
        assert_eq!(told, "qemu: /dev/fdset/12, /dev/fdset/x, /dev/fdset/0: no\nCould not open '/base.qcow2'");
        let (_dir, log) = log("Is another process using the image [/dev/fdset/2]?");
        let reason = describe(ending(None, &images()), &log, |image| (image == "/base.qcow2").then(db1));
        assert!(reason.starts_with("its base image /base.qcow2 is in use by VM `db1`; "), "{reason}");
    }

    #[test]
    fn a_long_log_is_cut_at_a_character() {
        let (_dir, log) = log(&"é".repeat(LOG_TAIL));
        let reason = describe(ending(None, &images()), &log, |_| unreachable!("the log names no disk"));
        let words = reason.split_once("it said: ").unwrap().1;
        assert_eq!(words.len(), LOG_TAIL);
    }

    #[test]
    fn an_unknown_exit_status_is_told() {
        let (_dir, log) = log("");
        let told = describe(ending(None, &images()), &log, |_| None);
        assert_eq!(told, "its process 7 ended; its exit status is not known");
    }
}
