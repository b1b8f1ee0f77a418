//! Processes that outlive the daemon: identified by number and start time, watched and signalled
//! through a pidfd. Also this process's own memory (`heap`, `huge_pages`) and descriptors
//! (`own_table`).

mod detach;
mod exit;
mod halted;
pub(crate) mod heap;
pub(crate) mod huge_pages;
pub(crate) mod own_table;
mod reserved;

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

pub(crate) use reserved::ReservedRecord;

/// Identity of a process, which tells it from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Process number.
    pub(crate) pid: u32,
    /// Start of the process, in clock ticks since the host's boot.
    pub(crate) start_time: u64,
}

/// How much the kernel prefers a process as victim when the host has no memory left, from -1000
/// (never) to 1000 (first): `oom_score_adj`. A child inherits the value of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OomScore(i16);

impl OomScore {
    /// Everybody's network and sockets depend on the process.
    pub(crate) const SERVICE: Self = Self(-900);
    /// The process is one VM.
    pub(crate) const VM: Self = Self(0);

    /// The kernel's number.
    pub(crate) const fn value(self) -> i16 {
        self.0
    }

    /// Gives a process this value. In a container the kernel may refuse a lower one than that of
    /// this process.
    pub(crate) fn set(self, pid: u32) {
        if let Err(error) = fs::write(format!("/proc/{pid}/oom_score_adj"), self.0.to_string()) {
            tracing::warn!(pid, score = self.0, %error, "a process keeps the OOM score of its parent");
        }
    }
}

/// A process that runs, or has ended and is not yet reaped.
#[derive(Debug)]
pub(crate) struct Process {
    identity: Identity,
    pidfd: OwnedFd,
    /// True if this daemon is its parent, to which the kernel tells the exit status.
    is_child: bool,
}

impl Identity {
    /// Reads the identity of the process that has this number now.
    fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start_time =
            start_time(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be read")))?;
        Ok(Self { pid, start_time })
    }
}

/// Reads the start time in the text of `/proc/PID/stat`.
pub(crate) fn start_time(stat: &str) -> Option<u64> {
    // The name in parentheses may hold any byte; field 22 is the 20th after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

impl Process {
    /// Starts `command` in a session of its own. It inherits its standard streams and `fds`, each
    /// at the given number, and no other descriptor.
    ///
    /// An error leaves no process behind.
    pub(crate) fn spawn(command: &mut Command, fds: &[(BorrowedFd<'_>, i32)]) -> io::Result<Self> {
        let mut child = detach::spawn(command, fds)?;
        let pid = child.id();
        match Identity::of(pid).and_then(|identity| Ok((identity, open(pid)?))) {
            Ok((identity, pidfd)) => Ok(Self { identity, pidfd, is_child: true }),
            Err(error) => {
                // Nobody could watch or end it. Both calls fail only for a process that has ended
                // and was waited for.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Takes over a child of this daemon that nobody has waited for, so that its number is still
    /// its own.
    pub(crate) fn of_child(pid: u32) -> io::Result<Self> {
        Ok(Self { identity: Identity::of(pid)?, pidfd: open(pid)?, is_child: true })
    }

    /// Opens a process that an earlier daemon started. Returns `None` if it has ended.
    pub(crate) fn adopt(identity: Identity) -> Option<Self> {
        let pidfd = open(identity.pid).ok()?;
        // The identity is read after opening the pidfd, so both belong to the same process.
        let process = (Identity::of(identity.pid).ok()? == identity).then_some(Self {
            identity,
            pidfd,
            is_child: false,
        })?;
        (!process.has_ended(Duration::ZERO)).then_some(process)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Returns a descriptor that becomes readable when the process ends.
    pub(crate) fn watch(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Sends a signal. A process that has ended is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        // ESRCH means that the process has ended, which is the purpose of the signal.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Waits at most `patience` for the process to end. Returns whether it has.
    pub(crate) fn has_ended(&self, patience: Duration) -> bool {
        let timeout = Timespec::try_from(patience).ok();
        let mut polled = [PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN)];
        matches!(poll(&mut polled, timeout.as_ref()), Ok(1))
    }

    /// Waits for the end of the process.
    fn await_end(&self) {
        let mut polled = [PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN)];
        while poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
    }

    /// Makes another handle of the same process.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { identity: self.identity, pidfd: self.pidfd.try_clone()?, is_child: self.is_child })
    }

    /// Kills the process and waits at most `patience` for its end.
    pub(crate) fn kill(self, patience: Duration) {
        self.halt(Duration::ZERO, patience);
    }

    /// Returns the exit status of an ended process. For one that an earlier daemon started, the
    /// kernel tells it from Linux 6.15 on, and before that only until the process is reaped.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        let told = if self.is_child { exit::reap(&self.pidfd) } else { None };
        told.or_else(|| exit::status(&self.pidfd, self.identity))
    }
}

/// Writes a record to a file atomically: after a crash the file has the old or the new record.
pub(crate) fn write_record<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(record)?)?;
    fs::rename(new, path)
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_adopted_by_number_and_start_time() {
        let process = Process::spawn(Command::new("sleep").arg("60"), &[]).unwrap();
        let identity = process.identity();
        assert!(Process::adopt(identity).is_some());
        assert!(Process::adopt(Identity { start_time: identity.start_time + 1, ..identity }).is_none());
        process.signal(Signal::KILL);
        assert!(process.has_ended(Duration::from_secs(10)));
        assert!(Process::adopt(identity).is_none(), "a zombie is not adopted");
        assert!(!process.status().unwrap().success());
    }

    #[test]
    fn inherited_descriptors_have_their_numbers() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo three >&3; echo four >&4"]);
        let process = Process::spawn(&mut command, &[(b.as_fd(), 3), (b.as_fd(), 4)]).unwrap();
        // The command keeps duplicates for further starts.
        drop((b, command));
        assert!(process.has_ended(Duration::from_secs(10)));
        assert_eq!(io::read_to_string(a).unwrap(), "three\nfour\n");
    }
}
