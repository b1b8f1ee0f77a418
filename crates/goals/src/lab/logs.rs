//! Logs of a lab's daemon and of what it runs.

use std::path::PathBuf;

use super::Lab;
use crate::machine::Command;
use crate::reason::{Measured, require};

/// Parts of lines that tell of errors and warnings.
const ERRORS: [&str; 5] = [" ERROR ", " WARN ", "panicked", "SIGBUS", "SIGSYS"];
/// Part of the error message of a program. A record of a [quiet level](QUIET_LEVELS) may quote one
/// that is no error, such as why QEMU does not use KVM here.
const MESSAGE: &str = "error:";
/// Levels below a warning.
const QUIET_LEVELS: [&str; 3] = ["INFO", "DEBUG", "TRACE"];

impl Lab<'_> {
    /// Returns the lines of all logs that tell of errors or warnings: logs in the state folder of
    /// the current daemon, and what its processes have written since the row began.
    pub fn log_errors(&mut self) -> Measured<Vec<String>> {
        let folder = self.daemon()?.folder.join("state/log");
        let find = Command::new("find").arg(&folder).args("-type f");
        let mut files: Vec<PathBuf> =
            self.run(&find)?.stdout.lines().into_iter().map(PathBuf::from).collect();
        let results = self.results.clone();
        let own = self.machine.list(&results)?;
        files.extend(own.into_iter().filter(|path| path.to_string_lossy().contains("-tautd.")));
        require(!files.is_empty(), "there are no logs")?;
        let mut found = Vec::new();
        for file in files {
            let text = self.read(&file)?;
            let lines = text.lines().into_iter().filter(|line| is_error(line)).map(without_colours);
            found.extend(lines);
        }
        Ok(found)
    }
}

fn is_error(line: &str) -> bool {
    let line = without_colours(line);
    // A record begins with its time and its level.
    let mut words = line.split_whitespace();
    let is_record = words.next().is_some_and(|time| time.starts_with(|first: char| first.is_ascii_digit()));
    let is_quiet = is_record && words.next().is_some_and(|level| QUIET_LEVELS.contains(&level));
    let line = format!(" {line}");
    ERRORS.iter().any(|part| line.contains(part)) || !is_quiet && line.contains(MESSAGE)
}

/// Removes what colours a line on a terminal.
fn without_colours(line: &str) -> String {
    let mut rest = line;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, text)| text);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_with_and_without_colours() {
        for line in [
            "2026-11-25T10:00:00Z  WARN tautd: the fabric has ended",
            "\u{1b}[2m2026\u{1b}[0m \u{1b}[31mERROR\u{1b}[0m tautd: no",
            "thread 'main' panicked at src/main.rs:1:1:",
            "error: cannot open",
            "qemu-system-x86_64: error: no memory",
            "guest: INFO error: no disk",
            "2026-11-25T10:00:00Z  INFO tautd: thread 'main' panicked",
            "2026-11-25T10:00:00Z  WARN tautd: why=\"error: no memory\"",
        ] {
            assert!(is_error(line), "{line}");
        }
        for line in [
            "2026-11-25T10:00:00Z  INFO tautd: a VM started",
            "2026-11-25T10:00:00Z  INFO tautd: how guests run here why=\"error: failed to set MSR\"",
            "\u{1b}[2m2026\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m tautd: why=\"error: failed to set MSR\"",
        ] {
            assert!(!is_error(line), "{line}");
        }
    }
}
