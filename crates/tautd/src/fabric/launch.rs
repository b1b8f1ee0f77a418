//! Finds a running fabric, or starts one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use taut_api::fabric::fd;

use super::counters::Counters;
use super::supervisor::PATIENCE;
use crate::process::{Identity, OomScore, Process};

/// Size of the process record in bytes: a page, which is what a file system gives out.
const RECORD: usize = 4096;

/// Locations of the fabric's program and files.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// The run directory.
    pub(crate) run_dir: PathBuf,
    /// Folder of `taut-fabric`.
    pub(crate) libexec: PathBuf,
    /// The counters file, open.
    pub(crate) counters: Arc<Counters>,
}

impl Paths {
    /// Returns the socket on which the fabric listens for the daemon.
    fn socket(&self) -> PathBuf {
        self.run_dir.join("fabric.sock")
    }

    /// Returns the socket of a successor until it takes over.
    fn next_socket(&self) -> PathBuf {
        self.run_dir.join("fabric.next.sock")
    }

    /// Returns the file with the fabric's process identity.
    fn pid(&self) -> PathBuf {
        self.run_dir.join("fabric.pid")
    }

    /// Makes room for the record of the fabric's process, so that it can be written when the file
    /// system is full: without it the fabric could not be replaced.
    pub(crate) fn reserve_record(&self) -> io::Result<()> {
        if self.pid().exists() {
            return Ok(());
        }
        fs::write(self.pid(), [b' '; RECORD])
    }

    /// Records the fabric's process for later daemons, in the place that was reserved. Whoever
    /// reads it meanwhile finds the old or the new record: both are in one page, written by one
    /// call.
    fn record(&self, process: &Process) -> io::Result<()> {
        let mut text = serde_json::to_vec(&process.identity())?;
        text.resize(RECORD, b' ');
        File::options().create(true).write(true).truncate(false).open(self.pid())?.write_all_at(&text, 0)
    }

    /// Returns the log file.
    pub(super) fn log(&self) -> PathBuf {
        self.run_dir.join("fabric.log")
    }

    /// Connects to the fabric that an earlier daemon left running.
    pub(super) fn adopt(&self) -> Option<(Process, UnixStream)> {
        let record = fs::read(self.pid()).ok()?;
        let identity: Identity = serde_json::from_slice(&record).ok()?;
        Some((Process::adopt(identity)?, self.connect().ok()?))
    }

    /// Opens another connection to the listening fabric.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.socket())
    }

    /// Starts a fabric and connects to it.
    pub(super) fn spawn(&self) -> io::Result<(Process, UnixStream)> {
        let (process, stream) = self.spawn_at(&self.socket())?;
        match self.record(&process) {
            Ok(()) => Ok((process, stream)),
            Err(error) => Err(end_unknown(process, error)),
        }
    }

    /// Starts a fabric beside the serving one; [`Self::succeed`] replaces that.
    pub(super) fn spawn_beside(&self) -> io::Result<(Process, UnixStream)> {
        self.spawn_at(&self.next_socket())
    }

    fn spawn_at(&self, socket: &Path) -> io::Result<(Process, UnixStream)> {
        remove_if_there(socket)?;
        let listener = UnixListener::bind(socket)?;
        let log = File::options().create(true).append(true).open(self.log())?;
        let program = self.libexec.join("taut-fabric");
        let mut command = Command::new(&program);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/");
        let fds = [(listener.as_fd(), fd::CONTROL), (self.counters.file().as_fd(), fd::COUNTERS)];
        let process = Process::spawn(&mut command, &fds, OomScore::SERVICE).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{}: {error} (--libexec sets its folder)", program.display()),
            )
        })?;
        // The connection waits in the listener's backlog until the fabric accepts it. Only the
        // fabric keeps the listener.
        match UnixStream::connect(socket) {
            Ok(stream) => Ok((process, stream)),
            Err(error) => Err(end_unknown(process, error)),
        }
    }

    /// From now on, daemons that look for the fabric find this one.
    pub(super) fn succeed(&self, process: &Process) -> io::Result<()> {
        fs::rename(self.next_socket(), self.socket())?;
        self.record(process)
    }

    /// Removes the files of a fabric.
    pub(super) fn clean(&self) {
        for path in [self.socket(), self.next_socket(), self.pid()] {
            // The files may be absent; other errors appear at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

/// Ends a fabric that nobody could find again, and returns the reason.
fn end_unknown(process: Process, reason: io::Error) -> io::Error {
    process.kill(PATIENCE);
    reason
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_replaces_another_one_in_the_room_that_was_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().to_owned();
        let counters = Arc::new(Counters::open(&run_dir.join("counters")).unwrap());
        let paths = Paths { run_dir, libexec: "/".into(), counters };
        paths.reserve_record().unwrap();
        assert!(paths.adopt().is_none());
        let length = || paths.pid().metadata().unwrap().len();
        let reserved = length();
        let mut command = Command::new("true");
        let process = Process::spawn(&mut command, &[], OomScore::VM).unwrap();
        for _ in 0..2 {
            paths.record(&process).unwrap();
            assert_eq!(length(), reserved);
            let read: Identity = serde_json::from_slice(&fs::read(paths.pid()).unwrap()).unwrap();
            assert_eq!(read, process.identity());
        }
    }
}
