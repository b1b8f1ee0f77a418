//! Ending a process of which a thread may wait in the kernel for ever.
//!
//! `SIGKILL` does not end the wait for a stranger in a close. Such a process stays until the
//! stranger answers, but it does nothing any more: no killed thread returns from the kernel. Its
//! successor need not wait for it.

use std::fs;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Process;

/// Interval between two looks at the threads of a killed process.
const LOOK: Duration = Duration::from_millis(10);
/// Looks in a row that must find all threads waiting. A thread that waits for a page of guest
/// memory goes on within this time, and then ends.
const LOOKS: u32 = 20;

/// Outcome of [`Process::halt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halted {
    /// The process has ended. Its exit status, if the kernel tells it.
    Ended(Option<ExitStatus>),
    /// The process was killed, and each of its threads waits in the kernel. It is reaped later.
    Waits,
    /// The process was killed, and a thread still runs. It is reaped later.
    Runs,
}

impl Halted {
    /// Tells whether the process does nothing any more.
    pub(crate) fn has_halted(self) -> bool {
        !matches!(self, Self::Runs)
    }

    /// The exit status, if it is known.
    pub(crate) fn status(self) -> Option<ExitStatus> {
        match self {
            Self::Ended(status) => status,
            Self::Waits | Self::Runs => None,
        }
    }
}

impl Process {
    /// Waits at most `grace` for the end of the process, then kills it, and waits at most
    /// `patience` until it does nothing any more.
    pub(crate) fn halt(&self, grace: Duration, patience: Duration) -> Halted {
        if !self.has_ended(grace) {
            self.signal(Signal::KILL);
        }
        let end = Instant::now() + patience;
        let mut waiting = 0;
        let halted = loop {
            if self.has_ended(LOOK) {
                return Halted::Ended(self.status());
            }
            waiting = if all_threads_wait(self.pid()) { waiting + 1 } else { 0 };
            if waiting >= LOOKS {
                break Halted::Waits;
            }
            if Instant::now() >= end {
                break Halted::Runs;
            }
        };
        self.reap_later();
        halted
    }

    /// Has a thread wait for the end of the process.
    fn reap_later(&self) {
        let (pid, later) = (self.pid(), self.duplicate());
        tracing::warn!(pid, "a killed process has not ended yet; a thread of it is in the kernel");
        let reap = move || {
            if let Ok(process) = later {
                process.await_end();
                process.status();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("reaper".to_owned()).spawn(reap) {
            tracing::warn!(pid, %error, "a killed process is not reaped before this daemon ends");
        }
    }
}

/// Tells whether each thread of a process has ended or is in a wait that no signal ends.
fn all_threads_wait(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        // A thread that is gone by now has ended.
        fs::read_to_string(thread.path().join("stat")).map_or(true, |stat| waits(&stat))
    })
}

/// Reads in the text of `/proc/PID/stat` whether the thread has ended or waits.
fn waits(stat: &str) -> bool {
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| state.starts_with(['D', 'Z', 'X']))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_process_that_ends_is_reaped_and_its_status_is_known() {
        let process = Process::spawn(&mut Command::new("true"), &[]).unwrap();
        assert!(process.halt(LONG, LONG).status().unwrap().success());
        let process = Process::spawn(Command::new("sleep").arg("60"), &[]).unwrap();
        let halted = process.halt(Duration::ZERO, LONG);
        assert!(halted.has_halted() && !halted.status().unwrap().success());
        assert!(matches!(process.halt(LONG, LONG), Halted::Ended(_)), "it was reaped");
    }

    #[test]
    fn only_threads_that_no_signal_wakes_count_as_waiting() {
        assert!(waits("7 (closing) D 1 7") && waits("7 (a) Z) Z 1") && waits("7 (x) X 1"));
        assert!(!waits("7 (D) S 1 7") && !waits("7 (worker) R 1") && !waits(""));
    }
}
