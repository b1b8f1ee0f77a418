//! The sources that the console process should have.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::net::SocketType;
use rustix::net::sockopt::set_socket_send_buffer_size;
use taut_api::Name;
use taut_console::control::message::{Kind, Request, SourceId, SourceSpec};
use taut_console::rate::RateLimit;
use taut_console::{CONSOLE_LOG, FABRIC_LOG, VM_LOG};
use taut_vm::launch::RunPaths;

use super::{LogFolder, logs, pipe};
use crate::external::connect_now;
use crate::listen::listen_at;

/// Number of typed bytes that the kernel may keep for a guest. Whoever types next waits behind
/// them.
const TYPED: usize = 8 << 10;

/// A source and where its descriptors come from.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    what: What,
    log: PathBuf,
    log_limit: u64,
}

#[derive(Debug, Clone)]
enum What {
    /// Output of a program. The FIFO is kept open, so that it keeps its content.
    Output { pipe: Arc<OwnedFd> },
    /// A serial console: where QEMU listens, and where people are awaited.
    Console { serial: PathBuf, door: PathBuf },
}

/// Descriptors for a source.
#[derive(Debug)]
pub(super) struct Opened {
    kind: Kind,
    log_limit: u64,
    fds: Vec<OwnedFd>,
}

/// The reason why a source cannot be given.
#[derive(Debug)]
pub(super) enum Hindrance {
    /// QEMU does not listen yet.
    NotYet,
    /// Something is wrong on this host.
    Failed(io::Error),
}

impl From<io::Error> for Hindrance {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Name of the source of the fabric's log.
pub(super) fn fabric() -> SourceId {
    id("fabric".to_owned())
}

/// Name of the source of a VM's serial console.
pub(super) fn console_of(vm: &Name) -> SourceId {
    id(format!("vm/{vm}/console"))
}

/// Name of the source of the output of a VM's process.
pub(super) fn output_of(vm: &Name) -> SourceId {
    id(format!("vm/{vm}/output"))
}

fn id(text: String) -> SourceId {
    SourceId::try_from(text).expect("names of VMs are short and have usual characters")
}

impl Wanted {
    pub(super) fn fabric(pipe: Arc<OwnedFd>, logs: &LogFolder) -> Self {
        Self { what: What::Output { pipe }, log: logs.fabric(), log_limit: FABRIC_LOG }
    }

    pub(super) fn output(pipe: Arc<OwnedFd>, vm: &Name, logs: &LogFolder) -> Self {
        Self { what: What::Output { pipe }, log: logs.vm(vm).process(), log_limit: VM_LOG }
    }

    pub(super) fn console(paths: &RunPaths, vm: &Name, logs: &LogFolder) -> Self {
        let what = What::Console { serial: paths.serial(), door: paths.console() };
        Self { what, log: logs.vm(vm).console(), log_limit: CONSOLE_LOG }
    }

    /// Opens the descriptors.
    pub(super) fn open(&self) -> Result<Opened, Hindrance> {
        let log = logs::open(&self.log, false)?;
        let (kind, mut fds) = match &self.what {
            What::Output { pipe } => (Kind::Output, vec![pipe::again(pipe)?]),
            What::Console { serial, door } => {
                let port = connect_now(serial).map_err(|_| Hindrance::NotYet)?;
                set_socket_send_buffer_size(&port, TYPED).map_err(io::Error::from)?;
                let door = listen_at(door, SocketType::STREAM).map_err(|error| {
                    io::Error::new(error.kind(), format!("cannot listen at {}: {error}", door.display()))
                })?;
                (Kind::Console, vec![port, door])
            }
        };
        fds.push(log);
        Ok(Opened { kind, log_limit: self.log_limit, fds })
    }
}

impl Opened {
    /// Returns the request that gives the process the source.
    pub(super) fn request(&self, id: SourceId) -> Request {
        let Self { kind, log_limit, .. } = *self;
        Request::Add(SourceSpec { id, kind, log_limit, rate: RateLimit::DEFAULT })
    }

    /// Returns its descriptors.
    pub(super) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.fds.iter().map(|fd| fd.as_fd()).collect()
    }
}
