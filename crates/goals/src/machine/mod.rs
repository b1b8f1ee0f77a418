//! Everything that rows do to the outside: programs, files, processes, time. Rows and
//! [`crate::lab`] have no other way, so that tests can put a machine that fails in place of this
//! one.

mod command;
mod doc;
mod ended;
mod interrupt;
mod launch;
#[cfg(test)]
pub(crate) mod stand_in;
mod text;
mod this;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::reason::Measured;

pub use command::{Command, Words};
pub use doc::Doc;
pub use ended::Ended;
pub use interrupt::{is_interrupted, watch_for_interrupts};
pub use launch::{Launch, PREFERRED, launch};
pub use text::Text;
pub use this::ThisMachine;

/// Process that was started and not waited for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Job {
    /// Process ID.
    pub pid: u32,
}

/// Signals that rows send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

/// Programs, files, processes and time.
pub trait Machine {
    /// Runs a program to its end. Fails if it cannot be started or exceeds its limit; how it ended
    /// is in the answer.
    fn run(&mut self, command: &Command) -> Measured<Ended>;

    /// Starts a program in the background.
    fn start(&mut self, command: &Command) -> Measured<Job>;

    /// Waits for the end of a job, for so long at most.
    fn wait(&mut self, job: &Job, limit: Duration) -> Measured<Ended>;

    /// Returns true until the job has ended.
    fn is_running(&mut self, job: &Job) -> bool;

    /// Returns what a job has written to standard output so far.
    fn output(&mut self, job: &Job) -> Measured<Text>;

    /// Sends a signal to all processes of the session that a job began, as a terminal's Ctrl-C
    /// does.
    fn signal_session(&mut self, pid: u32, signal: Signal) -> Measured<()>;

    /// Sends a signal to a process, which need not be a job.
    fn signal(&mut self, pid: u32, signal: Signal) -> Measured<()>;

    /// Reads a file.
    fn read(&mut self, path: &Path) -> Measured<Text>;

    /// Writes a file. Creates it if it is missing.
    fn write(&mut self, path: &Path, text: &str) -> Measured<()>;

    /// Returns true if there is such a file, folder or socket.
    fn exists(&mut self, path: &Path) -> bool;

    /// Returns size in bytes of a file.
    fn size(&mut self, path: &Path) -> Measured<u64>;

    /// Makes a folder and those above it.
    fn make_folder(&mut self, path: &Path) -> Measured<()>;

    /// Removes a file, or an empty folder of a control group.
    fn remove(&mut self, path: &Path) -> Measured<()>;

    /// Removes a folder with its content, without leaving its file system. Succeeds if it is gone.
    fn remove_all(&mut self, path: &Path) -> Measured<()>;

    /// Lists a folder's entries in order.
    fn list(&mut self, folder: &Path) -> Measured<Vec<PathBuf>>;

    /// Copies a file.
    fn copy(&mut self, from: &Path, to: &Path) -> Measured<()>;

    /// Finds a program on the PATH, or by its path if the name has a `/`.
    fn program(&mut self, name: &str) -> Option<PathBuf>;

    /// Returns the value of an environment variable of this program.
    fn variable(&mut self, name: &str) -> Option<String>;

    /// Returns the time since some moment.
    fn now(&mut self) -> Duration;

    /// Waits. Fails when this program is asked to end.
    fn sleep(&mut self, time: Duration) -> Measured<()>;

    /// Sets the folder in which the output of programs that are recorded is kept.
    fn record_in(&mut self, folder: &Path) -> Measured<()>;

    /// Begins or ends a part in which requests to end are not heeded, because it cleans up. Returns
    /// true if it was such a part already.
    fn set_closing(&mut self, is_closing: bool) -> bool;

    /// Returns true for a stand-in in tests, whose answers mean nothing.
    fn is_stand_in(&self) -> bool {
        false
    }

    /// Returns true for a stand-in that has had no fault yet: what is waited for is taken for
    /// granted then.
    fn takes_for_granted(&self) -> bool {
        false
    }
}
