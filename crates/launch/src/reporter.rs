//! Writing the report.

use std::fs::File;
use std::io::{self, Write as _};

use taut_launch::{Line, Missing, REPORT_FD, Step, Wall};

use crate::failure::{Failed, Within as _};
use crate::sys::inherited;

/// The writing end of the report, and what it will say of missing walls.
#[derive(Debug)]
pub(crate) struct Reporter {
    pipe: File,
    may_lack: Vec<Wall>,
    missing: Vec<Missing>,
}

impl Reporter {
    /// Takes over the inherited pipe. It is closed when the program starts.
    pub(crate) fn take() -> io::Result<Self> {
        let pipe = File::from(inherited::take(REPORT_FD)?);
        Ok(Self { pipe, may_lack: Vec::new(), missing: Vec::new() })
    }

    /// Sets the walls without which the program may start.
    pub(crate) fn tolerate(&mut self, walls: impl IntoIterator<Item = Wall>) {
        self.may_lack = walls.into_iter().collect();
    }

    /// Notes a wall that is turned off on purpose.
    pub(crate) fn note(&mut self, wall: Wall, reason: impl Into<String>) {
        self.missing.push(Missing { wall, reason: reason.into() });
    }

    /// Notes a wall that cannot be put up, or fails if the program needs it.
    pub(crate) fn lack(&mut self, step: Step, wall: Wall, reason: impl Into<String>) -> Result<(), Failed> {
        if !self.may_lack.contains(&wall) {
            return Err(Failed::new(step, format!("the wall `{wall}` is missing: {}", reason.into())));
        }
        self.note(wall, reason);
        Ok(())
    }

    /// States the number of the process that becomes the program.
    pub(crate) fn pid(&mut self, pid: u32) -> Result<(), Failed> {
        self.send(&Line::Pid(pid)).within(Step::PidNamespace, || "reporting the process".to_owned())
    }

    /// States the missing walls. If nobody reads the report any more, the program does not start.
    pub(crate) fn missing(&mut self) -> Result<(), Failed> {
        let missing = std::mem::take(&mut self.missing);
        self.send(&Line::Missing(missing)).within(Step::Confirm, || "reporting the missing walls".to_owned())
    }

    /// States that the skeleton is complete.
    pub(crate) fn skeleton(&mut self) -> Result<(), Failed> {
        self.send(&Line::Skeleton(true)).within(Step::Root, || "reporting the skeleton".to_owned())
    }

    /// States the step that failed.
    pub(crate) fn failed(&mut self, failed: &Failed) -> io::Result<()> {
        self.send(&Line::Failed { step: failed.step, error: failed.error.clone() })
    }

    fn send(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.pipe.write_all(&bytes)
    }
}
