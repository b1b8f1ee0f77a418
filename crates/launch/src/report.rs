//! The launcher's report: one JSON value a line.
//!
//! 1. `{"pid":N}`: number of the process that becomes the program, as the caller sees it.
//! 2. `{"missing":[…]}`: the walls that are not in force. The process then waits to be confirmed.
//! 3. The end, when the program has started, or `{"failed":{"step":…,"error":…}}`. A failure can
//!    also be the only line.
//!
//! A skeleton reports `{"skeleton":true}` or a failure. The reader bounds the report and takes
//! nothing in it for granted.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::step::Step;
use crate::wall::Wall;

/// Size limit of a report, in bytes.
pub const MAX_REPORT: usize = 64 << 10;

/// Longest text in an error, in characters.
const SHOWN: usize = 1000;

/// A line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// Number of the process that becomes the program.
    Pid(u32),
    /// The walls that are not in force.
    Missing(Vec<Missing>),
    /// The skeleton is complete.
    Skeleton(bool),
    /// A step has failed, and the process ends.
    Failed {
        /// The step.
        step: Step,
        /// What was tried, and the kernel's error.
        error: String,
    },
}

/// A wall that is not in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// The wall.
    pub wall: Wall,
    /// Why it is not in force.
    pub reason: String,
}

/// A program that has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// Number of its process: a child of the process that started the launcher.
    pub pid: u32,
    /// The walls that are not in force.
    pub missing: Vec<Missing>,
}

/// Why a program has not started, or is not known to have started.
///
/// The caller kills and waits for the process of [`LaunchError::pid`], if there is one, and for the
/// launcher.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A step has failed.
    #[error("step {} of the launch, {step}, failed: {error}", .step.number())]
    Failed {
        /// The process that was to become the program, if it exists.
        pid: Option<u32>,
        /// The step.
        step: Step,
        /// What was tried, and the kernel's error.
        error: String,
    },
    /// The report ended early.
    #[error("the launcher ended before the program started")]
    Ended {
        /// The process that was to become the program, if it exists.
        pid: Option<u32>,
    },
    /// The report has not ended within the time limit.
    #[error("the launcher has not finished within {} ms", .patience.as_millis())]
    Silent {
        /// The process that was to become the program, if it exists.
        pid: Option<u32>,
        /// The time limit.
        patience: Duration,
    },
    /// A line has another form, or is out of order.
    #[error("the launcher's report has the line `{line}`, which is not expected there")]
    Unexpected {
        /// The process that was to become the program, if it exists.
        pid: Option<u32>,
        /// The line, shortened.
        line: String,
    },
    /// The report is too long.
    #[error("the launcher's report is longer than {MAX_REPORT} bytes")]
    TooLong {
        /// The process that was to become the program, if it exists.
        pid: Option<u32>,
    },
    /// The pipe cannot be read.
    #[error("the launcher's report cannot be read")]
    Read {
        /// The process that was to become the program, if it exists.
        pid: Option<u32>,
        /// The kernel's error.
        source: io::Error,
    },
}

impl LaunchError {
    /// Returns the number of the process that was to become the program, if it exists. It is a
    /// child of the process that started the launcher.
    pub const fn pid(&self) -> Option<u32> {
        match self {
            Self::Failed { pid, .. }
            | Self::Ended { pid }
            | Self::Silent { pid, .. }
            | Self::Unexpected { pid, .. }
            | Self::TooLong { pid }
            | Self::Read { pid, .. } => *pid,
        }
    }

    /// Returns advice for the user.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Failed { step, .. } => step.hint(),
            Self::Ended { .. } => "see whether the kernel or somebody killed it: dmesg, memory limits",
            Self::Silent { .. } => "see whether the host has CPU time, and whether its file systems answer",
            Self::Unexpected { .. } | Self::TooLong { .. } => {
                "see whether tautd and taut-launch are of the same version, and restart tautd"
            }
            Self::Read { .. } => "this is a fault of taut; report it",
        }
    }
}

/// A report that is being read.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Bytes of the line that is not complete yet.
    rest: Vec<u8>,
    size: usize,
    pid: Option<u32>,
    missing: Option<Vec<Missing>>,
    skeleton: bool,
    failed: Option<(Step, String)>,
}

impl Report {
    /// Returns the process that becomes the program, as soon as the report has stated it.
    pub const fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), LaunchError> {
        self.size = self.size.saturating_add(bytes.len());
        if self.size > MAX_REPORT {
            return Err(LaunchError::TooLong { pid: self.pid });
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.rest);
                self.take(line.trim_ascii_end())?;
            }
        }
        Ok(())
    }

    fn take(&mut self, line: &[u8]) -> Result<(), LaunchError> {
        let is_untouched = self.failed.is_none() && !self.skeleton;
        match serde_json::from_slice(line) {
            Ok(Line::Pid(pid)) if is_untouched && self.pid.is_none() && is_process(pid) => {
                self.pid = Some(pid);
            }
            Ok(Line::Missing(missing)) if is_untouched && self.pid.is_some() && self.missing.is_none() => {
                let shown = missing.into_iter();
                let shown = shown.map(|one| Missing { wall: one.wall, reason: printable(&one.reason) });
                self.missing = Some(shown.collect());
            }
            Ok(Line::Skeleton(true)) if is_untouched && self.pid.is_none() => self.skeleton = true,
            Ok(Line::Failed { step, error }) if is_untouched => {
                self.failed = Some((step, printable(&error)));
            }
            _ => {
                let line = printable(&String::from_utf8_lossy(line));
                return Err(LaunchError::Unexpected { pid: self.pid, line });
            }
        }
        Ok(())
    }

    /// Concludes the report of a launch at the end of the pipe.
    pub fn finish(self) -> Result<Launched, LaunchError> {
        let (pid, missing) = (self.pid, self.missing.clone());
        let is_skeleton = self.skeleton;
        self.conclude()?;
        match (pid, missing) {
            (Some(pid), Some(missing)) if !is_skeleton => Ok(Launched { pid, missing }),
            _ => Err(LaunchError::Ended { pid }),
        }
    }

    /// Concludes the report of a skeleton at the end of the pipe.
    pub fn finish_skeleton(self) -> Result<(), LaunchError> {
        let (pid, is_skeleton) = (self.pid, self.skeleton);
        self.conclude()?;
        if is_skeleton { Ok(()) } else { Err(LaunchError::Ended { pid }) }
    }

    /// Returns the failure, or an error for a line that is not complete.
    fn conclude(self) -> Result<(), LaunchError> {
        if let Some((step, error)) = self.failed {
            return Err(LaunchError::Failed { pid: self.pid, step, error });
        }
        if !self.rest.is_empty() {
            let line = printable(&String::from_utf8_lossy(&self.rest));
            return Err(LaunchError::Unexpected { pid: self.pid, line });
        }
        Ok(())
    }
}

/// A process that has all its walls and waits to be confirmed.
#[derive(Debug)]
pub struct Waiting {
    /// Its process and the walls that are not in force.
    pub launched: Launched,
    report: Report,
}

impl Waiting {
    /// Confirms the start on the other end of [`CONFIRM_FD`](crate::CONFIRM_FD), and reads the rest
    /// of the report, which ends when the program has started. `patience` bounds the reading.
    /// Writing one byte to a pipe without others never waits.
    pub fn finish(
        self,
        confirm: OwnedFd,
        pipe: impl AsFd,
        patience: Duration,
    ) -> Result<Launched, LaunchError> {
        // The process may have ended, of which the report tells.
        let _ = rustix::io::write(&confirm, &[1]);
        drop(confirm);
        read(self.report, pipe, patience, |_| false)?.finish()
    }
}

/// Reads the report of a launch until the process waits to be confirmed, which takes milliseconds.
/// `patience` bounds the whole time.
pub fn read_waiting(pipe: impl AsFd, patience: Duration) -> Result<Waiting, LaunchError> {
    let report = read(Report::default(), pipe, patience, |report| report.missing.is_some())?;
    let launched = report.clone().finish()?;
    Ok(Waiting { launched, report })
}

/// Reads the report of a skeleton, which ends when the skeleton is complete.
pub fn read_skeleton_report(pipe: impl AsFd, patience: Duration) -> Result<(), LaunchError> {
    read(Report::default(), pipe, patience, |_| false)?.finish_skeleton()
}

/// Reads on until `is_enough` or to the end of the pipe.
fn read(
    mut report: Report,
    pipe: impl AsFd,
    patience: Duration,
    is_enough: impl Fn(&Report) -> bool,
) -> Result<Report, LaunchError> {
    let deadline = Instant::now().checked_add(patience);
    let mut buffer = [0; 4096];
    loop {
        let failed = |error: rustix::io::Errno| LaunchError::Read { pid: report.pid, source: error.into() };
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut polled = [PollFd::new(&pipe, PollFlags::IN)];
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) => return Err(LaunchError::Silent { pid: report.pid, patience }),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(failed(error)),
        }
        match rustix::io::read(&pipe, &mut buffer) {
            Ok(0) => return Ok(report),
            Ok(size) => {
                report.feed(&buffer[..size])?;
                if is_enough(&report) {
                    return Ok(report);
                }
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Returns true for a number that a process can have.
const fn is_process(pid: u32) -> bool {
    pid > 0 && pid <= i32::MAX as u32
}

/// Shortens a text and replaces control characters, so that it can be shown on a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect()
}
