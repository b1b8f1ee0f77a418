//! One start, from the queue to its end.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use taut_api::error::ErrorKind;
use taut_api::{ApiError, Name};

use super::progress::Progress;
use super::thread::{Prepared, Report};
use super::threads::Wait;
use super::{Order, PATIENCE, Request};
use crate::vms::copies::InUse;
use crate::vms::record::Record;

/// The loop's decision about a process that waits. A start that is given up has none, and its
/// sender is dropped.
pub(super) type Decision = io::Result<()>;

/// Sends the launch order to the thread of a start, and the receiver of the loop's decision about
/// the process.
pub(super) type Orders = Sender<(Order, Receiver<Decision>)>;

/// What has become of a start.
#[derive(Debug)]
pub(in crate::vms) enum Outcome {
    /// Its process is recorded, and waits to be confirmed.
    Waiting(Launched),
    /// The program runs.
    Started,
    /// It has failed, and has left neither process nor record.
    Failed(ApiError),
    /// It was given up, and its process has ended.
    GivenUp,
}

/// A process that waits to be confirmed. It ends if this is dropped.
#[derive(Debug)]
pub(in crate::vms) struct Launched {
    pub(in crate::vms) record: Box<Record>,
    pub(in crate::vms) copies: Vec<InUse>,
    pub(in crate::vms) confirm: Sender<Decision>,
}

/// User and copies of a process that is being launched, and the sender of the decision about it.
#[derive(Debug)]
pub(super) struct Launching {
    pub(super) user: u32,
    /// Copies of its kernel and initrd.
    pub(super) copies: Vec<InUse>,
    pub(super) confirm: Sender<Decision>,
}

/// One start.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) vm: Name,
    pub(super) request: Request,
    pub(super) progress: Arc<Progress>,
    /// The VM is not to start any more, or something else is to be prepared for it.
    pub(super) given_up: bool,
    pub(super) stage: Stage,
}

/// The stage of a start.
#[derive(Debug)]
pub(super) enum Stage {
    /// There is no thread for it yet, for this reason.
    Queued(Wait),
    /// The thread opens files.
    Preparing(Orders),
    /// All files are open.
    Prepared(Orders, Prepared),
    /// The thread launches the process.
    Launching(Launching),
    /// The process of this user becomes its program, or ends because the start was given up.
    Deciding(u32),
    /// The result is known, and the thread closes files.
    Ending,
}

impl Stage {
    /// Returns the user of the process that is being launched.
    pub(super) const fn user(&self) -> Option<u32> {
        match self {
            Self::Launching(Launching { user, .. }) | Self::Deciding(user) => Some(*user),
            _ => None,
        }
    }
}

impl Start {
    /// Returns whether the result is wanted, and not known yet.
    pub(super) const fn is_present(&self) -> bool {
        !self.given_up && !matches!(self.stage, Stage::Ending)
    }

    /// Cancels the start, which ends its thread as soon as its files answer. Returns false if its
    /// process was confirmed.
    pub(super) fn give_up(&mut self) -> bool {
        if matches!(self.stage, Stage::Ending) || !self.progress.cancel() {
            return false;
        }
        self.given_up = true;
        if matches!(self.stage, Stage::Preparing(_) | Stage::Prepared(..)) {
            // Without orders the thread does not wait for one.
            self.stage = Stage::Ending;
        }
        true
    }

    /// Takes a report of the thread. Returns what has become of the start, if that is of interest.
    pub(super) fn take(&mut self, report: Report) -> Option<Outcome> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ending);
        match (report, stage) {
            (Report::Prepared(prepared), Stage::Preparing(orders)) => {
                self.stage = Stage::Prepared(orders, prepared);
                None
            }
            (Report::Waiting(record), Stage::Launching(Launching { user, copies, confirm })) => {
                self.stage = Stage::Deciding(user);
                // Without a decision the thread ends the process.
                self.progress.commit().then_some(Outcome::Waiting(Launched { record, copies, confirm }))
            }
            (Report::Started, Stage::Deciding(_)) => Some(Outcome::Started),
            // The result is known, or of no interest.
            (_, Stage::Ending) => None,
            (_, stage) if self.given_up => stage.user().map(|_| Outcome::GivenUp),
            (Report::Failed(error), _) => Some(Outcome::Failed(error)),
            (Report::Prepared(_) | Report::Waiting(_) | Report::Started | Report::Ended, _) => {
                Some(Outcome::Failed(panicked()))
            }
        }
    }

    /// Gives up the start if it has made no progress for too long, and returns the error.
    pub(super) fn overdue(&mut self) -> Option<ApiError> {
        let works = matches!(self.stage, Stage::Preparing(_) | Stage::Launching(_));
        let error = self.progress.overdue(PATIENCE).filter(|_| works && !self.given_up)?;
        self.give_up().then_some(error)
    }
}

fn panicked() -> ApiError {
    let message = "the thread that opens its files has panicked";
    ApiError::new(ErrorKind::Internal, message, "report this fault with the lines of the daemon's log")
}
