//! The process that becomes the program.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};

use taut_launch::{Step, Wall};

use super::namespaces::TURNED_OFF;
use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;
use crate::sys::calls::{Side, create_sibling};

/// What a process does after this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It ends: another process becomes the program.
    Launcher,
    /// It becomes the program.
    Program,
}

/// Creates the process that becomes the program and reports its number. Without a pid namespace,
/// that is this process.
pub(crate) fn enter(is_wanted: bool, reporter: &mut Reporter) -> Result<Role, Failed> {
    if !is_wanted {
        reporter.note(Wall::PidNamespace, TURNED_OFF);
        reporter.pid(std::process::id())?;
        return Ok(Role::Program);
    }
    let (permission, granted) =
        std::io::pipe().within(Step::PidNamespace, || "creating a pipe".to_owned())?;
    match create_sibling() {
        Ok(Side::Sibling) => {
            drop(granted);
            await_permission(permission)?;
            // Without this, session and process group would have no number in the namespace.
            rustix::process::setsid().within(Step::PidNamespace, || "starting a session".to_owned())?;
            Ok(Role::Program)
        }
        Ok(Side::Caller(pid)) => {
            grant(pid, granted, reporter)?;
            Ok(Role::Launcher)
        }
        Err(error) => {
            reporter.lack(Step::PidNamespace, Wall::PidNamespace, error.to_string())?;
            reporter.pid(std::process::id())?;
            Ok(Role::Program)
        }
    }
}

/// Reports the new process and lets it go on. If nobody reads the report, it must end.
fn grant(pid: u32, mut granted: PipeWriter, reporter: &mut Reporter) -> Result<(), Failed> {
    reporter.pid(pid)?;
    granted.write_all(&[1]).within(Step::PidNamespace, || format!("process {pid} has ended"))
}

/// Waits until the launcher has reported this process, so that its own lines come later.
fn await_permission(mut permission: PipeReader) -> Result<(), Failed> {
    let mut byte = [0];
    let is_reported = permission.read_exact(&mut byte);
    is_reported.within(Step::PidNamespace, || "the launcher ended without reporting".to_owned())
}
