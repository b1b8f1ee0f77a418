//! The progress of a start: what its thread does, and whether anybody still waits for it.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use taut_api::ApiError;
use taut_api::error::ErrorKind;

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
    /// What has to answer, such as `its kernel /boot/vmlinuz`.
    subject: String,
    began: Instant,
}

/// The decision about a start, which is made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Open,
    /// Nobody waits for it any more.
    Cancelled,
    /// Its process is recorded and about to be confirmed.
    Committed,
}

impl Progress {
    /// The progress of a start that has just begun.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let step = Step { act: "preparing", subject: "its files".to_owned(), began: now };
        Self(Mutex::new(State { step, moved: now, verdict: Verdict::Open }))
    }

    /// Notes that a step begins.
    ///
    /// # Errors
    /// The start was cancelled.
    pub(crate) fn begin(&self, act: &'static str, subject: String) -> io::Result<()> {
        let now = Instant::now();
        let mut state = self.lock();
        state.step = Step { act, subject, began: now };
        state.moved = now;
        state.check()
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
    pub(super) fn cancel(&self) -> bool {
        let mut state = self.lock();
        if state.verdict == Verdict::Open {
            state.verdict = Verdict::Cancelled;
        }
        state.verdict == Verdict::Cancelled
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
        let Step { act, subject, began } = &self.lock().step;
        StartStep { text: format!("{act} {subject}"), since: Some(*began) }
    }

    /// Returns the error of a start without progress for `patience`.
    pub(super) fn overdue(&self, patience: Duration) -> Option<ApiError> {
        let state = self.lock();
        let is_overdue = state.verdict == Verdict::Open && state.moved.elapsed() > patience;
        is_overdue.then(|| {
            let message = format!("{} did not answer within {} s", state.step.subject, patience.as_secs());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_cancelled_or_committed_and_not_both() {
        let progress = Progress::new();
        assert!(progress.begin("opening", "its kernel /k".to_owned()).is_ok());
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
        progress.begin("opening", "its kernel /k".to_owned()).unwrap();
        assert_eq!(progress.step().text, "opening its kernel /k");
        assert!(progress.overdue(Duration::from_secs(30)).is_none());
        std::thread::sleep(Duration::from_millis(2));
        let error = progress.overdue(Duration::from_millis(1)).unwrap().to_string();
        assert!(error.contains("its kernel /k did not answer") && error.contains("hint: "), "{error}");
        progress.advance().unwrap();
        assert!(progress.overdue(Duration::from_secs(30)).is_none());
    }
}
