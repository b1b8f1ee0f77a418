//! The daemon's side of the console process ([`taut_console`]): keeps one running, and gives it
//! everything that VMs and the fabric write.
//!
//! [`Console`] knows which sources the process should have. A thread of its own, the
//! [`supervisor`], compares that with what the process has, every five seconds and whenever
//! something changes. So it makes no difference whether a process was adopted, has just been
//! started, or has lost a source.
//!
//! Without a process VMs go on. What they write waits in FIFOs, each of which holds 64 KiB; a
//! serial console without a listener writes nowhere.

mod launch;
mod logs;
mod pipe;
mod supervisor;
mod wanted;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use taut_api::Name;
use taut_console::control::caller::Caller;
use taut_console::control::message::{Request, SourceId};
use taut_vm::launch::RunPaths;

use crate::confine::Confiner;
use crate::process::Process;
use crate::store::Store;
use launch::Places;
pub(crate) use logs::{LogFolder, VmLogs};
use wanted::{Hindrance, Wanted};

/// Time limit for an answer of the process.
const PATIENCE: Duration = Duration::from_secs(1);

/// Handle of the console process.
#[derive(Debug, Clone)]
pub(crate) struct Console(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    places: Places,
    fabric_pipe: Arc<OwnedFd>,
    wanted: Mutex<BTreeMap<SourceId, Arc<Wanted>>>,
    /// The connection, while there is one. Locked for one request.
    caller: Mutex<Option<Caller>>,
    /// The process that an earlier daemon left running, until the supervisor takes it over.
    found: Mutex<Option<Process>>,
    /// Set when the daemon ends the process: the supervisor starts no other.
    ending: AtomicBool,
    /// Readable after a change.
    changed: OwnedFd,
    supervisor: Mutex<Option<JoinHandle<()>>>,
    /// The lock of the folder of logs, which other daemons must not use.
    _log_lock: Option<File>,
}

impl Console {
    /// Looks for a running process; [`Console::start`] starts one. Makes what is needed to start
    /// the fabric.
    pub(crate) fn new(
        run_dir: &Path,
        libexec: &Path,
        logs: LogFolder,
        log_lock: Option<File>,
        confiner: Confiner,
    ) -> io::Result<Self> {
        let cannot =
            |what: String| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
        let places = Places { run_dir: run_dir.to_owned(), libexec: libexec.to_owned(), logs, confiner };
        places.logs.make().map_err(cannot(format!("the folder of logs {}", places.logs.path().display())))?;
        places.record().reserve().map_err(cannot("the record of the console process".to_owned()))?;
        let path = places.fabric_pipe();
        let fabric_pipe = Arc::new(pipe::find(&path).or_else(|_| pipe::make(&path))?);
        let wanted = Wanted::fabric(fabric_pipe.clone(), &places.logs);
        let wanted = BTreeMap::from([(wanted::fabric(), Arc::new(wanted))]);
        let found = places.record().adopt();
        let caller = found.as_ref().and_then(|_| Caller::connect(&places.control(), PATIENCE).ok());
        Ok(Self(Arc::new(Shared {
            places,
            fabric_pipe,
            wanted: Mutex::new(wanted),
            caller: Mutex::new(caller),
            found: Mutex::new(found),
            ending: AtomicBool::new(false),
            changed: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            supervisor: Mutex::new(None),
            _log_lock: log_lock,
        })))
    }

    /// Adopts the process that was found, or starts one, and keeps one running.
    pub(crate) fn start(&self, store: Arc<Store>) -> io::Result<()> {
        let shared = self.0.clone();
        let thread =
            std::thread::Builder::new().name("console".into()).spawn(move || shared.supervise(&store))?;
        *self.0.supervisor.lock().expect("no holder panics") = Some(thread);
        Ok(())
    }

    /// Ends the process and waits for it.
    pub(crate) fn end(&self) {
        self.0.ending.store(true, Ordering::SeqCst);
        self.0.wake();
        let supervisor = self.0.supervisor.lock().expect("no holder panics").take();
        if let Some(thread) = supervisor {
            // A supervisor that panicked has printed that; there is nothing left to wait for.
            let _ = thread.join();
        }
    }

    /// Returns the folder of logs.
    pub(crate) fn logs(&self) -> &LogFolder {
        &self.0.places.logs
    }

    /// Returns what a fabric gets as standard output and error. Waits for nobody: the fabric is
    /// needed at once.
    pub(crate) fn fabric_output(&self) -> io::Result<File> {
        Ok(pipe::again(&self.0.fabric_pipe)?.into())
    }

    /// Begins to keep the output of a VM's process, which is about to be started. The log begins
    /// anew.
    pub(crate) fn begin_output(&self, vm: &Name, paths: &RunPaths) -> io::Result<()> {
        let pipe = Arc::new(pipe::make(&paths.pipe())?);
        if let Err(error) = logs::open(&self.logs().vm(vm).process(), true) {
            tracing::warn!(%vm, %error, "the log of its process cannot be made now");
        }
        let wanted = self.0.want(wanted::output_of(vm), Wanted::output(pipe, vm, self.logs()));
        if let Err(Hindrance::Failed(error)) = self.0.give(&wanted::output_of(vm), &wanted) {
            tracing::debug!(%vm, %error, "the console process gets its output later");
        }
        Ok(())
    }

    /// Opens what a VM's process gets as standard output and error.
    pub(crate) fn output(paths: &RunPaths) -> io::Result<File> {
        Ok(pipe::find(&paths.pipe())?.into())
    }

    /// Connects a VM's serial console. QEMU listens already, or will soon.
    pub(crate) fn connect_serial(&self, vm: &Name, paths: &RunPaths) {
        if let Err(error) = logs::open(&self.logs().vm(vm).console(), false) {
            tracing::warn!(%vm, %error, "the log of its console cannot be made now");
        }
        self.0.want(wanted::console_of(vm), Wanted::console(paths, vm, self.logs()));
    }

    /// Goes on with a VM that an earlier daemon started. One of version 0.1 has neither FIFO nor
    /// serial socket, and writes its logs itself.
    pub(crate) fn adopt(&self, vm: &Name, paths: &RunPaths) {
        match pipe::find(&paths.pipe()) {
            Ok(pipe) => {
                self.0.want(wanted::output_of(vm), Wanted::output(Arc::new(pipe), vm, self.logs()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%vm, %error, "the output of its process is not kept"),
        }
        if paths.serial().exists() {
            self.connect_serial(vm, paths);
        }
    }

    /// Makes sure that the log of a VM's process has all that the process wrote.
    pub(crate) fn flush_output(&self, vm: &Name, paths: &RunPaths) {
        let flushed = self.0.tell(&Request::Flush { id: wanted::output_of(vm) }, &[]);
        if flushed.is_err()
            && let Err(error) = pipe::drain(&paths.pipe(), &self.logs().vm(vm).process())
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%vm, %error, "the last words of its process cannot be read");
        }
    }

    /// Forgets a VM whose process has ended. Its logs stay.
    pub(crate) fn forget(&self, vm: &Name, paths: &RunPaths) {
        for id in [wanted::output_of(vm), wanted::console_of(vm)] {
            self.0.wanted().remove(&id);
            // The supervisor finds out what the process has too much.
            let _ = self.0.tell(&Request::Remove { id }, &[]);
        }
        // The file may not exist.
        let _ = fs::remove_file(paths.pipe());
    }

    /// Returns the log of a VM's serial console. That of a VM which version 0.1 started is in the
    /// run directory.
    pub(crate) fn console_log(logs: &VmLogs, paths: &RunPaths) -> PathBuf {
        let old = paths.console_log();
        if old.exists() { old } else { logs.console() }
    }

    /// Returns the log of a VM's process, likewise.
    pub(crate) fn process_log(logs: &VmLogs, paths: &RunPaths) -> PathBuf {
        let old = paths.log();
        if old.exists() { old } else { logs.process() }
    }
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, BTreeMap<SourceId, Arc<Wanted>>> {
        self.wanted.lock().expect("no holder panics")
    }

    fn caller(&self) -> MutexGuard<'_, Option<Caller>> {
        self.caller.lock().expect("no holder panics")
    }

    /// Adds a source, in the place of an earlier one with this name.
    fn want(&self, id: SourceId, wanted: Wanted) -> Arc<Wanted> {
        let wanted = Arc::new(wanted);
        self.wanted().insert(id, wanted.clone());
        self.wake();
        wanted
    }

    fn wake(&self) {
        // Fails only after 2^64 unread changes.
        let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
    }

    /// Opens a source's descriptors and gives them to the process, unless another source has taken
    /// its name meanwhile.
    fn give(&self, id: &SourceId, wanted: &Arc<Wanted>) -> Result<(), Hindrance> {
        let opened = wanted.open()?;
        // The next source is given by a later holder of the lock.
        let mut caller = self.caller();
        if !self.wanted().get(id).is_some_and(|now| Arc::ptr_eq(now, wanted)) {
            return Ok(());
        }
        Ok(self.tell_by(&mut caller, &opened.request(id.clone()), &opened.fds())?)
    }

    fn tell(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.tell_by(&mut self.caller(), request, fds)
    }

    /// Sends a request and waits for its answer. A connection on which none came is given up, so
    /// that a process which stands still is waited for only once.
    fn tell_by(
        &self,
        caller: &mut Option<Caller>,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let Some(open) = caller else { return Err(io::ErrorKind::NotConnected.into()) };
        let told = open.tell(request, fds, PATIENCE);
        if open.is_broken() {
            *caller = None;
            self.wake();
        }
        told
    }
}

#[cfg(test)]
mod tests;
