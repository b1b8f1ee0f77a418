//! A VM's serial console and its log, both local to the host.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use serde::Serialize;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_console::CONSOLE_LOG;
use taut_console::follow::{Follower, News};

use crate::output::{self, Format, Outcome};

/// Ctrl-], as in telnet.
const LEAVE: u8 = 0x1d;

/// The terminal in raw mode. Dropping it restores the former mode.
struct Raw(Option<Termios>);

impl Raw {
    fn enter() -> Self {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            // Standard input is not a terminal, so there is no mode to change.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &raw);
        }
        Self(before)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Connects the terminal to the console until either end closes or the user types Ctrl-].
pub(crate) fn attach(socket: &Path) -> Outcome {
    let console = UnixStream::connect(socket).map_err(|error| failed("console", socket, &error))?;
    eprintln!("connected; Ctrl-] leaves");
    let raw = Raw::enter();
    let from_console = console.try_clone().map_err(|error| failed("console", socket, &error))?;
    let printer = thread::spawn(move || copy(from_console, io::stdout(), None));
    let _ = copy(io::stdin(), &console, Some(LEAVE));
    let _ = console.shutdown(std::net::Shutdown::Both);
    let _ = printer.join();
    drop(raw);
    eprintln!();
    Ok(())
}

/// Prints a console's log; with `follow`, also what is appended until the command is interrupted.
///
/// The log has a limited size: its older half is cut off when it is full, and reading goes on at
/// the same line. What was cut off unread is missing, and standard error says so.
pub(crate) fn log(file: &Path, follow: bool, format: Format) -> Outcome {
    let unreadable = |error: io::Error| failed("console log", file, &error);
    let log = File::open(file).map_err(unreadable)?;
    let mut news = Follower::new(CONSOLE_LOG);
    let mut read = || {
        let News { bytes, missed } = news.read(&log).map_err(unreadable)?;
        if missed {
            eprintln!("some output is missing here: the log was cut before it could be read");
        }
        Ok(bytes)
    };
    if format == Format::Json {
        return log_as_json(&mut read, follow);
    }
    loop {
        let bytes = read()?;
        copy(&bytes[..], io::stdout(), None).map_err(unreadable)?;
        if has_more(&bytes) {
            continue;
        }
        if !follow {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Returns whether a read has left something behind, which only the log of an earlier version of
/// taut is long enough for.
fn has_more(bytes: &[u8]) -> bool {
    bytes.len() as u64 >= CONSOLE_LOG
}

/// Line of a console's log.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line {
    /// Number of the line, from 1.
    line: usize,
    text: String,
}

/// Prints a log as one list of lines; with `follow`, one document per line. `read` returns what was
/// appended.
fn log_as_json(read: &mut dyn FnMut() -> Result<Vec<u8>, ApiError>, follow: bool) -> Outcome {
    let mut lines = Lines::default();
    let mut complete = Vec::new();
    loop {
        let bytes = read()?;
        complete.extend(lines.split(&bytes));
        if has_more(&bytes) {
            continue;
        }
        if !follow {
            complete.extend(lines.rest());
            output::print(Format::Json, &complete, |_| String::new());
            return Ok(());
        }
        for line in complete.drain(..) {
            output::write(&(serde_json::to_string(&line).expect("text is JSON") + "\n"));
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Splits a growing log into lines.
#[derive(Debug, Default)]
struct Lines {
    count: usize,
    /// Beginning of a line whose end has not been read.
    begun: Vec<u8>,
}

impl Lines {
    /// Returns the lines that end in `bytes`.
    fn split(&mut self, bytes: &[u8]) -> Vec<Line> {
        self.begun.extend_from_slice(bytes);
        let Some(end) = self.begun.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        String::from_utf8_lossy(&whole).lines().map(|text| self.number(text)).collect()
    }

    /// Returns the line that has no end, if there is one.
    fn rest(&mut self) -> Option<Line> {
        let rest = std::mem::take(&mut self.begun);
        (!rest.is_empty()).then(|| self.number(&String::from_utf8_lossy(&rest)))
    }

    fn number(&mut self, text: &str) -> Line {
        self.count += 1;
        Line { line: self.count, text: text.trim_end_matches('\r').to_owned() }
    }
}

/// Copies until the end of the input or until the byte `stop`.
fn copy(mut from: impl Read, mut to: impl Write, stop: Option<u8>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let bytes = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => &buffer[..n],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = stop.and_then(|stop| bytes.iter().position(|&byte| byte == stop));
        to.write_all(&bytes[..end.unwrap_or(bytes.len())])?;
        to.flush()?;
        if end.is_some() {
            return Ok(());
        }
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> ApiError {
    let message = format!("cannot open the {what} at {}", path.display());
    ApiError::new(
        ErrorKind::Unavailable,
        message,
        "run taut as root; right after its start a VM has no console yet",
    )
    .because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_grows_is_split_into_numbered_lines() {
        let mut lines = Lines::default();
        let line = |line, text: &str| Line { line, text: text.to_owned() };
        assert_eq!(lines.split(b"one\r\ntw"), [line(1, "one")]);
        assert_eq!(lines.split(b"o\nthree \xff\nfour"), [line(2, "two"), line(3, "three \u{fffd}")]);
        assert_eq!((lines.rest(), lines.rest()), (Some(line(4, "four")), None));
    }

    #[test]
    fn copying_stops_at_the_leave_key() {
        let mut to = Vec::new();
        copy(&b"abc\x1ddef"[..], &mut to, Some(LEAVE)).unwrap();
        assert_eq!(to, b"abc");
    }
}
