//! Threads of the data plane: named, bound to pCPUs, and fatal to the process when they panic.

use std::io;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::thread::gettid;

use super::affinity::CpuAffinity;

/// A running thread.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: JoinHandle<()>,
    affinity: CpuAffinity,
}

impl Thread {
    /// Starts a thread. A panic in `body` aborts the process.
    ///
    /// # Errors
    /// The kernel refuses another thread.
    pub(crate) fn start(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (send, receive) = mpsc::channel();
        let handle = Builder::new().name(name).spawn(move || {
            let _abort = AbortOnPanic;
            let _ = send.send(gettid());
            body();
        })?;
        let tid = receive.recv().map_err(io::Error::other)?;
        Ok(Self { handle, affinity: CpuAffinity::new(tid) })
    }

    /// Binds the thread to these pCPUs; see [`CpuAffinity::bind`].
    pub(crate) fn bind(&mut self, cpus: &[u32]) -> io::Result<()> {
        self.affinity.bind(cpus)
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(self) {
        // Never an error: a thread that panics aborts the process.
        let _ = self.handle.join();
    }
}

/// Aborts the process when the thread panics.
///
/// A data plane that lost a thread would look alive. `tautd` starts a new process instead, which
/// resumes all sessions.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
