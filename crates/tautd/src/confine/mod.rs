//! Starts programs behind walls, so that a program that a stranger has taken over reaches nothing
//! but its own descriptors.
//!
//! `taut-launch` builds the walls and becomes the program: see the documentation of `taut_launch`.
//! VMs, the fabric, the console process and inspectors of images are started here. What each kind
//! of program gets is in [`walls`].

mod skeleton;
#[cfg(test)]
pub(crate) mod stand_in;
#[cfg(test)]
mod tests;
mod users;
mod walls;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use taut_api::passthrough::PciAddress;
use taut_launch::{
    CONFIRM_FD, DOCUMENT_FD, FIRST_INHERITED, LaunchError, Missing, REPORT_FD, Waiting, read_waiting,
};

use crate::process::{OomScore, Process};
use skeleton::Skeleton;
pub(crate) use users::{FIRST as FIRST_USER, USERS, Users};

/// Maximum time until a program has started. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after which an earlier daemon's launcher is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Name of the launcher's file.
const LAUNCHER: &str = "taut-launch";

/// A program and what it gets.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    /// The program's file.
    pub(crate) path: &'a Path,
    /// Its arguments, without its name.
    pub(crate) args: &'a [String],
    /// Descriptors that it inherits, each at its number, from 10 on without a gap.
    pub(crate) descriptors: Vec<(BorrowedFd<'a>, i32)>,
    /// Standard input; nothing without it.
    pub(crate) input: Option<BorrowedFd<'a>>,
    /// Standard output.
    pub(crate) output: &'a File,
    /// Error output.
    pub(crate) errors: &'a File,
    /// User and group.
    pub(crate) user: u32,
    /// Place among the kernel's victims when memory runs out.
    pub(crate) oom: OomScore,
    /// Devices of the host.
    pub(crate) devices: Devices,
    /// Whether it may lock any amount of memory.
    pub(crate) locks_memory: bool,
    /// Maximum number of processes and threads of its user.
    pub(crate) threads: u64,
    /// The kind of program.
    pub(crate) walls: Walls,
    /// Folder of its files on the host, which is in its environment for whoever looks for it.
    pub(crate) run_dir: &'a Path,
}

/// Devices of the host that a program uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    /// KVM.
    pub(crate) kvm: bool,
    /// PCI devices that it has for itself.
    pub(crate) passed: Vec<PciAddress>,
}

/// The kind of a program, which decides about its system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walls {
    /// QEMU or a microguest.
    Vm,
    /// The fabric, which adds stricter walls by itself.
    Fabric,
    /// The console process, which opens nothing.
    Console,
    /// The inspector of images.
    Inspector,
}

/// The process of a program that starts, or has started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: Process,
    /// Its user; `None` if it has no walls at all.
    pub(crate) user: Option<u32>,
    /// Walls that this host lacks, with the reasons.
    pub(crate) missing: Vec<String>,
}

/// A wall that cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct LaunchFailed {
    text: String,
    hint: &'static str,
}

/// Returns what to do about a program that was not started, if the launcher says so.
pub(crate) fn hint(error: &io::Error) -> Option<&'static str> {
    error.get_ref()?.downcast_ref::<LaunchFailed>().map(|failed| failed.hint)
}

/// Starts programs behind walls.
#[derive(Debug, Clone)]
pub(crate) struct Confiner {
    users: Users,
    /// The launcher and the mounts that all programs share; `None` in tests, whose programs are
    /// started without walls.
    launcher: Option<Arc<Launcher>>,
}

#[derive(Debug)]
struct Launcher {
    program: PathBuf,
    skeleton: Skeleton,
}

impl Confiner {
    /// Starts programs as these users by the launcher in this folder.
    pub(crate) fn new(libexec: &Path, users: Users) -> Self {
        let launcher = Launcher { program: libexec.join(LAUNCHER), skeleton: Skeleton::default() };
        Self { users, launcher: Some(Arc::new(launcher)) }
    }

    /// Starts programs without walls, for tests without privileges.
    #[cfg(test)]
    pub(crate) const fn without_walls() -> Self {
        Self { users: Users::from(FIRST_USER), launcher: None }
    }

    /// Returns the users of programs.
    pub(crate) const fn users(&self) -> Users {
        self.users
    }

    /// Makes the mounts that all programs share, if that is due. Only threads with the daemon's
    /// table of descriptors may do so; starts by other threads use what is there.
    pub(crate) fn prepare(&self) {
        if let Some(launcher) = &self.launcher {
            launcher.skeleton.prepare(&launcher.program);
        }
    }

    /// Starts a program in a session of its own. With all its walls up, the process waits until
    /// `record` has noted it for later daemons; only then the program runs. So a daemon that is
    /// killed leaves a process that is recorded, or none.
    ///
    /// An error, of `record` too, leaves no process behind; [`hint`] tells how to mend its cause.
    pub(crate) fn start(
        &self,
        program: &Program<'_>,
        record: impl FnOnce(&Started) -> io::Result<()>,
    ) -> io::Result<Started> {
        match &self.launcher {
            Some(launcher) => launcher.start(program, record),
            None => start_directly(program, record),
        }
    }
}

/// Starts a program without walls, and without waiting for its record.
fn start_directly(
    program: &Program<'_>,
    record: impl FnOnce(&Started) -> io::Result<()>,
) -> io::Result<Started> {
    let mut command = Command::new(program.path);
    command.args(program.args);
    streams(&mut command, program)?;
    let process = Process::spawn(&mut command, &program.descriptors)?;
    program.oom.set(process.pid());
    let started = Started { process, user: None, missing: Vec::new() };
    match record(&started) {
        Ok(()) => Ok(started),
        Err(error) => Err(end(started, error)),
    }
}

fn streams(command: &mut Command, program: &Program<'_>) -> io::Result<()> {
    let input = match program.input {
        Some(input) => Stdio::from(input.try_clone_to_owned()?),
        None => Stdio::null(),
    };
    command.stdin(input).stdout(program.output.try_clone()?).stderr(program.errors.try_clone()?);
    command.current_dir("/");
    Ok(())
}

impl Launcher {
    fn start(
        &self,
        program: &Program<'_>,
        record: impl FnOnce(&Started) -> io::Result<()>,
    ) -> io::Result<Started> {
        let file = open(program.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", program.path.display()))
        })?;
        let skeleton = self.skeleton.namespace();
        let count = i32::try_from(program.descriptors.len()).map_err(io::Error::other)?;
        let (at_program, at_skeleton) = (FIRST_INHERITED + count, FIRST_INHERITED + count + 1);
        let mut document = walls::document(program, at_program, skeleton.as_ref().map(|_| at_skeleton));
        if is_script(&file) {
            // Its interpreter reads it by its descriptor.
            document.keep.push(at_program);
        }
        let document = in_memory(&document.to_bytes().map_err(io::Error::other)?)?;
        let (report, report_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (confirmed, confirm) = pipe_with(PipeFlags::CLOEXEC)?;

        let mut descriptors = program.descriptors.clone();
        descriptors.extend([(document.as_fd(), DOCUMENT_FD), (report_end.as_fd(), REPORT_FD)]);
        descriptors.push((confirmed.as_fd(), CONFIRM_FD));
        descriptors.push((file.as_fd(), at_program));
        descriptors.extend(skeleton.as_ref().map(|namespace| (namespace.as_fd(), at_skeleton)));
        let mut command = Command::new(&self.program);
        streams(&mut command, program)?;
        let launcher = Process::spawn(&mut command, &descriptors).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{}: {error} (--libexec sets its folder)", self.program.display()),
            )
        })?;
        // The report ends when nobody else has the writing end.
        drop(command);
        drop(descriptors);
        drop((report_end, confirmed));
        let waiting = match read_waiting(&report, PATIENCE) {
            Ok(waiting) => waiting,
            Err(error) => {
                if let Some(pid) = error.pid() {
                    end_child(pid);
                }
                launcher.kill(PATIENCE);
                return Err(failed(error));
            }
        };
        let pid = waiting.launched.pid;
        let process = if pid == launcher.pid() {
            launcher
        } else {
            launcher.kill(PATIENCE);
            Process::of_child(pid).inspect_err(|_| end_child(pid))?
        };
        let shown = |Missing { wall, reason }: &Missing| format!("{wall} ({reason})");
        let missing = waiting.launched.missing.iter().map(shown).collect();
        let started = Started { process, user: Some(program.user), missing };
        match record(&started).and_then(|()| confirm_start(waiting, confirm, &report)) {
            Ok(()) => Ok(started),
            Err(error) => Err(end(started, error)),
        }
    }
}

/// Lets a waiting process become its program.
fn confirm_start(waiting: Waiting, confirm: OwnedFd, report: &OwnedFd) -> io::Result<()> {
    waiting.finish(confirm, report, PATIENCE).map(drop).map_err(failed)
}

/// Ends a process whose program must not run, and returns the reason.
fn end(started: Started, reason: io::Error) -> io::Error {
    started.process.kill(PATIENCE);
    reason
}

fn failed(error: LaunchError) -> io::Error {
    let hint = error.hint();
    io::Error::other(LaunchFailed { text: format!("{:#}", anyhow::Error::from(error)), hint })
}

/// Returns whether a process that an earlier daemon has recorded runs its program. Waits for a
/// launcher to end: with the daemon that it waits for gone, that takes a moment.
pub(crate) fn is_program(process: &Process) -> bool {
    let executable = format!("/proc/{}/exe", process.pid());
    let is_launcher = || {
        let name = std::fs::read_link(&executable).ok()?.file_name()?.to_str()?.to_owned();
        Some(name.starts_with(LAUNCHER))
    };
    let end = Instant::now() + PATIENCE;
    // A process that is about to end has no program any more.
    while is_launcher() != Some(false) && Instant::now() < end {
        if process.has_ended(LOOK_AGAIN) {
            return false;
        }
    }
    !process.has_ended(Duration::ZERO)
}

/// Ends a child that nobody has waited for, so that its number is still its own.
fn end_child(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // Both fail only if the process has ended, or if it is no child.
    let _ = kill_process(pid, Signal::KILL);
    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
}

/// Returns whether an interpreter runs the file.
fn is_script(file: &OwnedFd) -> bool {
    let mut beginning = [0; 2];
    rustix::io::pread(file, &mut beginning, 0) == Ok(2) && beginning == *b"#!"
}

/// Returns a file in memory with these bytes, to be read from its start.
fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("taut-document", MemfdFlags::CLOEXEC)?);
    io::Write::write_all(&mut file, bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}
