//! Finds a running console process, or starts one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::net::SocketType;

use super::LogFolder;
use crate::confine::{Confiner, Devices, Program, Started, Walls};
use crate::listen::listen_at;
use crate::process::{OomScore, Process, ReservedRecord};

/// Maximum number of threads of all console processes of this host: each has one.
const THREADS: u64 = 64;

/// Locations of the process's program and files.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) run_dir: PathBuf,
    pub(super) libexec: PathBuf,
    pub(super) logs: LogFolder,
    pub(super) confiner: Confiner,
}

impl Places {
    /// Returns the socket on which the process awaits the daemon.
    pub(super) fn control(&self) -> PathBuf {
        self.run_dir.join("console-control.sock")
    }

    /// Returns the FIFO of the fabric's log.
    pub(super) fn fabric_pipe(&self) -> PathBuf {
        self.run_dir.join("fabric.pipe")
    }

    /// Returns the record of the process.
    pub(super) fn record(&self) -> ReservedRecord {
        ReservedRecord::new(self.run_dir.join("console.pid"))
    }

    /// Starts a process.
    pub(super) fn spawn(&self) -> io::Result<Process> {
        let listener = listen_at(&self.control(), SocketType::SEQPACKET)?;
        let said = self.logs.console_process();
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = File::options();
        let said =
            options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(said)?;
        let path = self.libexec.join("taut-console");
        let program = Program {
            path: &path,
            args: &[],
            descriptors: Vec::new(),
            input: Some(listener.as_fd()),
            output: &said,
            errors: &said,
            user: self.confiner.users().console(),
            oom: OomScore::SERVICE,
            devices: Devices::default(),
            locks_memory: false,
            threads: THREADS,
            walls: Walls::Console,
            run_dir: &self.run_dir,
        };
        self.confiner.prepare();
        let Started { process, missing, .. } =
            self.confiner.start(&program, |started| self.record().write(&started.process))?;
        if !missing.is_empty() {
            tracing::warn!(missing = missing.join(", "), "the console process lacks walls on this host");
        }
        Ok(process)
    }

    /// Removes the files of a process that has ended, and of the fabric's FIFO.
    pub(super) fn clean(&self) {
        for path in [self.control(), self.fabric_pipe()] {
            // The files may be absent; other errors appear at the next start.
            let _ = fs::remove_file(path);
        }
        self.record().remove();
    }
}
