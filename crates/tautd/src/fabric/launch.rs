//! Finds a running fabric, or starts one.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use taut_api::fabric::fd;

use super::counters::Counters;
use super::supervisor::PATIENCE;
use crate::confine::{Confiner, Devices, Program, Walls};
use crate::console::Console;
use crate::process::{OomScore, Process, ReservedRecord};

/// Maximum number of threads of all fabrics of this host, of which there are two in an upgrade.
/// Each has a worker for each pCPU that it is given, and a few threads besides.
const THREADS: u64 = 4096;

/// Locations of the fabric's program and files.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// The run directory.
    pub(crate) run_dir: PathBuf,
    /// Folder of `taut-fabric`.
    pub(crate) libexec: PathBuf,
    /// The counters file, open.
    pub(crate) counters: Arc<Counters>,
    /// Starts the fabric behind walls.
    pub(crate) confiner: Confiner,
    /// Keeps what it writes.
    pub(crate) console: Console,
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

    /// Returns the record of the fabric's process.
    fn pid(&self) -> ReservedRecord {
        ReservedRecord::new(self.run_dir.join("fabric.pid"))
    }

    /// Returns the record of a successor's process until it takes over.
    fn next_pid(&self) -> ReservedRecord {
        ReservedRecord::new(self.run_dir.join("fabric.next.pid"))
    }

    /// Makes room for the record of the fabric's process.
    pub(crate) fn reserve_record(&self) -> io::Result<()> {
        self.pid().reserve()
    }

    /// Records the fabric's process for later daemons.
    fn record(&self, process: &Process) -> io::Result<()> {
        self.pid().write(process)?;
        // Only a fabric of version 0.1 had it.
        let _ = fs::remove_file(self.old_log());
        Ok(())
    }

    /// Returns the log file of the recorded fabric.
    pub(super) fn log(&self) -> PathBuf {
        let old = self.old_log();
        if old.exists() { old } else { self.console.logs().fabric() }
    }

    /// Returns the log file of a fabric that version 0.1 started.
    fn old_log(&self) -> PathBuf {
        self.run_dir.join("fabric.log")
    }

    /// Connects to the fabric that an earlier daemon left running, after ending a successor that
    /// has not taken over.
    pub(super) fn adopt(&self) -> Option<(Process, UnixStream)> {
        let serving = self.pid().adopt().map(|process| process.identity());
        let successor = self.next_pid().adopt();
        if let Some(process) = successor.filter(|process| Some(process.identity()) != serving) {
            process.kill(PATIENCE);
        }
        self.next_pid().remove();
        Some((self.pid().adopt()?, self.connect().ok()?))
    }

    /// Opens another connection to the listening fabric.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.socket())
    }

    /// Starts a fabric and connects to it.
    pub(super) fn spawn(&self) -> io::Result<(Process, UnixStream)> {
        self.spawn_at(&self.socket(), |process| self.record(process))
    }

    /// Starts a fabric beside the serving one; [`Self::succeed`] replaces that.
    pub(super) fn spawn_beside(&self) -> io::Result<(Process, UnixStream)> {
        self.spawn_at(&self.next_socket(), |process| self.next_pid().write(process))
    }

    fn spawn_at(
        &self,
        socket: &Path,
        record: impl FnOnce(&Process) -> io::Result<()>,
    ) -> io::Result<(Process, UnixStream)> {
        remove_if_there(socket)?;
        let listener = UnixListener::bind(socket)?;
        let output = self.console.fabric_output()?;
        let path = self.libexec.join("taut-fabric");
        let program = Program {
            path: &path,
            args: &[],
            descriptors: vec![(listener.as_fd(), fd::CONTROL), (self.counters.file().as_fd(), fd::COUNTERS)],
            input: None,
            output: &output,
            errors: &output,
            user: self.confiner.users().fabric(),
            oom: OomScore::SERVICE,
            devices: Devices::default(),
            locks_memory: false,
            threads: THREADS,
            walls: Walls::Fabric,
            run_dir: &self.run_dir,
        };
        self.confiner.prepare();
        let started = self.confiner.start(&program, |started| record(&started.process))?;
        if !started.missing.is_empty() {
            tracing::warn!(missing = started.missing.join(", "), "the fabric lacks walls on this host");
        }
        let process = started.process;
        // The connection waits in the listener's backlog until the fabric accepts it. Only the
        // fabric keeps the listener.
        match UnixStream::connect(socket) {
            Ok(stream) => Ok((process, stream)),
            Err(error) => {
                process.kill(PATIENCE);
                Err(error)
            }
        }
    }

    /// From now on, daemons that look for the fabric find this one.
    pub(super) fn succeed(&self, process: &Process) -> io::Result<()> {
        fs::rename(self.next_socket(), self.socket())?;
        self.record(process)?;
        self.next_pid().remove();
        Ok(())
    }

    /// Removes the files of a fabric.
    pub(super) fn clean(&self) {
        for path in [self.socket(), self.next_socket()] {
            // The files may be absent; other errors appear at the next start.
            let _ = fs::remove_file(path);
        }
        self.pid().remove();
        self.next_pid().remove();
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
