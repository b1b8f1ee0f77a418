//! Threads of the data plane: named, and fatal to the process when they panic.

use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A running thread.
#[derive(Debug)]
pub(crate) struct Thread(JoinHandle<()>);

impl Thread {
    /// Starts a thread. A panic in `body` aborts the process.
    ///
    /// # Errors
    /// The kernel refuses another thread.
    pub(crate) fn start(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let handle = Builder::new().name(name).spawn(move || {
            let _abort = AbortOnPanic;
            body();
        })?;
        Ok(Self(handle))
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(self) {
        // Never an error: a thread that panics aborts the process.
        let _ = self.0.join();
    }
}

/// Returns the CPU time that this thread has got so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
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
