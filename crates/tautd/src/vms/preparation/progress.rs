//! The progress of a start: the step of its thread, and the decision about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use taut_api::ApiError;
use taut_api::error::ErrorKind;

use crate::access::files::Named;
use crate::board::StartStep;

/// Progress of one start, shared between its thread and the reconcile loop.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Debug)]
struct State {
    step: Step,
    /// Time of the last progress.
    moved: Instant,
    verdict: Verdict,
}

/// A step of a start that waits for a file system.
#[derive(Debug)]
struct Step {
    /// The activity, such as `opening`.
    act: &'static str,
    /// What has to answer, such as `its kernel`.
    subject: String,
    /// Its path, if it has one.
    path: PathBuf,
    began: Instant,
}

/// The decision about a start, which is made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Open,
    /// The VM is not to start any more.
    Cancelled,
    /// Its process is recorded and about to be confirmed.
    Committed,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.subject)?;
        if self.path.as_os_str().is_empty() { Ok(()) } else { write!(out, " {}", self.path.display()) }
    }
}

impl Progress {
    /// The progress of a start that has just begun.
    pub(in crate::vms) fn new() -> Self {
        let now = Instant::now();
        let (subject, path) = ("its files".to_owned(), PathBuf::new());
        let step = Step { act: "preparing", subject, path, began: now };
        Self(Mutex::new(State { step, moved: now, verdict: Verdict::Open }))
    }

    /// Notes that a step begins. An empty path is none.
    ///
    /// # Errors
    /// The start was cancelled.
    pub(crate) fn begin(&self, act: &'static str, subject: &str, path: &Path) -> io::Result<()> {
        let now = Instant::now();
        let mut state = self.lock();
        state.step = Step { act, subject: subject.to_owned(), path: path.to_owned(), began: now };
        state.moved = now;
        state.check()
    }

    /// Notes that a step with a file of the VM begins.
    ///
    /// # Errors
    /// The start was cancelled.
    pub(super) fn begin_with(&self, act: &'static str, file: &Named) -> Result<(), ApiError> {
        let subject = format!("its {}", file.purpose);
        self.begin(act, &subject, &file.path).map_err(|error| cancelled(&error))
    }

    /// Notes progress within a step.
    ///
    /// # Errors
    /// The start was cancelled.
    pub(crate) fn advance(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.moved = Instant::now();
        state.check()
    }

    /// Cancels the start. Returns false if its process stays.
    pub(in crate::vms) fn cancel(&self) -> bool {
        let mut state = self.lock();
        if state.verdict == Verdict::Open {
            state.verdict = Verdict::Cancelled;
        }
        state.verdict == Verdict::Cancelled
    }

    /// Returns whether the start was cancelled.
    pub(in crate::vms) fn is_cancelled(&self) -> bool {
        self.lock().verdict == Verdict::Cancelled
    }

    /// Decides that the process of this start stays. Returns false if the start was cancelled.
    pub(super) fn commit(&self) -> bool {
        let mut state = self.lock();
        if state.verdict == Verdict::Open {
            state.verdict = Verdict::Committed;
        }
        state.verdict == Verdict::Committed
    }

    /// Returns what the start does, for users.
    pub(super) fn step(&self) -> StartStep {
        let step = &self.lock().step;
        StartStep { text: format!("{} {step}", step.act), since: Some(step.began) }
    }

    /// Returns the path that has to answer; empty if there is none.
    pub(super) fn path(&self) -> PathBuf {
        self.lock().step.path.clone()
    }

    /// Returns the time since the last progress.
    pub(super) fn idle(&self) -> Duration {
        self.lock().moved.elapsed()
    }

    /// Sets the last progress back by `time`.
    #[cfg(test)]
    pub(super) fn set_back(&self, time: Duration) {
        let mut state = self.lock();
        state.moved = state.moved.checked_sub(time).expect("the host runs for longer");
    }

    /// Returns the error of a start without progress for `patience`.
    pub(super) fn overdue(&self, patience: Duration) -> Option<ApiError> {
        let state = self.lock();
        let is_overdue = state.verdict == Verdict::Open && state.moved.elapsed() > patience;
        is_overdue.then(|| {
            let message = format!("{} did not answer within {} s", state.step, patience.as_secs());
            let hint = "see whether the file system that it is on answers, then start the VM again";
            ApiError::new(ErrorKind::Unavailable, message, hint)
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder of the progress panics")
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        match self.verdict {
            Verdict::Cancelled => Err(io::Error::other("the start was cancelled")),
            Verdict::Open | Verdict::Committed => Ok(()),
        }
    }
}

/// Returns the error of a start that was cancelled.
pub(super) fn cancelled(error: &io::Error) -> ApiError {
    ApiError::new(ErrorKind::Conflict, error.to_string(), "start the VM again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_cancelled_or_committed_and_not_both() {
        let progress = Progress::new();
        assert!(progress.begin("opening", "its kernel", Path::new("/k")).is_ok());
        assert!(progress.cancel() && !progress.commit() && progress.cancel());
        assert!(progress.advance().is_err());
        let progress = Progress::new();
        assert!(progress.commit() && !progress.cancel());
        assert!(progress.advance().is_ok());
        assert!(progress.overdue(Duration::ZERO).is_none(), "its process runs");
    }

    #[test]
    fn a_start_without_progress_names_what_did_not_answer() {
        let progress = Progress::new();
        progress.begin("opening", "its kernel", Path::new("/k")).unwrap();
        assert_eq!(progress.step().text, "opening its kernel /k");
        assert!(progress.overdue(Duration::from_secs(30)).is_none());
        std::thread::sleep(Duration::from_millis(2));
        let error = progress.overdue(Duration::from_millis(1)).unwrap().to_string();
        assert!(error.contains("its kernel /k did not answer") && error.contains("hint: "), "{error}");
        progress.advance().unwrap();
        assert!(progress.overdue(Duration::from_secs(30)).is_none());
    }
}
