//! The audit record: each change with its caller, on disk before it is made, and its outcome on
//! disk before it is answered.
//!
//! A change has two records in `audit.log`: the request, without which the change is not made, and
//! the outcome. A request that its caller may not make has one, in `audit-refused.log`: whoever may
//! do nothing cannot push changes out of the other file. A thread of its own writes; what comes in
//! while it waits for the disk is written together.

mod log;
mod read;
mod record;

use std::io;
use std::path::Path;

use taut_api::ApiError;
use taut_api::audit::{AuditCheck, AuditEntry, AuditOutcome};
use taut_api::error::ErrorKind;
use tokio::sync::{mpsc, oneshot};

pub(crate) use record::{Asked, digest, outcome_now};

use log::{Files, Log};
use record::Draft;

/// Name of the file with the changes, in the state directory.
const CHANGES: &str = "audit.log";
/// Name of the file with the refused requests.
const REFUSED: &str = "audit-refused.log";
/// Number of records that wait for the thread; further requests wait for their turn.
const QUEUED: usize = 256;

/// The thread that writes, the way to it, and the files.
#[derive(Debug)]
pub(crate) struct Audit {
    queue: mpsc::Sender<Work>,
    changes: Files,
    refused: Files,
}

/// The two chains of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chain {
    /// Changes, and attempts that failed for another reason than the caller's role.
    Changes,
    /// Requests that were refused because of the caller's role.
    Refused,
}

/// A record to be written.
#[derive(Debug)]
struct Work {
    draft: Draft,
    done: oneshot::Sender<Result<u64, ApiError>>,
}

impl Audit {
    /// Opens the files in the state directory and starts the thread.
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        Self::write_to(Log::open(folder, CHANGES)?, Log::open(folder, REFUSED)?)
    }

    fn write_to(changes: Log, refused: Log) -> io::Result<Self> {
        let (queue, work) = mpsc::channel(QUEUED);
        let files = (changes.files(), refused.files());
        let writer = Writer { changes, refused };
        std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(work))?;
        Ok(Self { queue, changes: files.0, refused: files.1 })
    }

    /// Records a request that is about to change something. Returns its number. After an error
    /// nothing may be changed.
    pub(crate) async fn request(&self, asked: Asked) -> Result<u64, ApiError> {
        self.record(Draft::Request(asked)).await
    }

    /// Records what came of a request, before it is answered.
    pub(crate) async fn outcome(&self, seq: u64, outcome: AuditOutcome) -> Result<(), ApiError> {
        self.record(Draft::Outcome(seq, outcome)).await.map(drop)
    }

    /// Records a request that is refused.
    pub(crate) async fn refused(&self, asked: Asked, outcome: AuditOutcome) -> Result<(), ApiError> {
        self.record(Draft::Refused(asked, outcome)).await.map(drop)
    }

    async fn record(&self, draft: Draft) -> Result<u64, ApiError> {
        let (done, written) = oneshot::channel();
        let ended = || ApiError::new(ErrorKind::Internal, "the audit thread has ended", "report this fault");
        self.queue.send(Work { draft, done }).await.map_err(|_| ended())?;
        written.await.map_err(|_| ended())?
    }

    /// Returns the newest entries of a chain, of one user or of all, oldest first. Reads files.
    pub(crate) fn newest(&self, chain: Chain, count: usize, uid: Option<u32>) -> io::Result<Vec<AuditEntry>> {
        read::newest(self.files(chain), count, uid)
    }

    /// Checks that no record of a chain was changed or removed. Reads files.
    pub(crate) fn check(&self, chain: Chain) -> io::Result<AuditCheck> {
        read::check(self.files(chain))
    }

    const fn files(&self, chain: Chain) -> &Files {
        match chain {
            Chain::Changes => &self.changes,
            Chain::Refused => &self.refused,
        }
    }
}

/// The thread's state.
#[derive(Debug)]
struct Writer {
    changes: Log,
    refused: Log,
}

impl Writer {
    /// Works until nobody can ask any more.
    fn run(mut self, mut queue: mpsc::Receiver<Work>) {
        while let Some(first) = queue.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < QUEUED
                && let Ok(next) = queue.try_recv()
            {
                batch.push(next);
            }
            self.write(batch);
        }
    }

    fn write(&mut self, batch: Vec<Work>) {
        let (refused, changes): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|work| matches!(work.draft, Draft::Refused(..)));
        let (requests, outcomes): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|work| matches!(work.draft, Draft::Request(_)));
        // Outcomes have their space already. Without space for a request's outcome, the request is
        // refused.
        let room = self.changes.reserve(requests.len() as u64);
        append(&mut self.changes, outcomes);
        match room {
            Ok(()) => append(&mut self.changes, requests),
            Err(error) => fail(requests.into_iter().map(|work| work.done), &error),
        }
        append(&mut self.refused, refused);
    }
}

/// Writes some records, and tells whoever waits for them.
fn append(log: &mut Log, works: Vec<Work>) {
    if works.is_empty() {
        return;
    }
    let (drafts, waiting): (Vec<_>, Vec<_>) = works.into_iter().map(|work| (work.draft, work.done)).unzip();
    match log.append(drafts) {
        Ok(numbers) => {
            for (done, number) in waiting.into_iter().zip(numbers) {
                // Whoever waited may have gone.
                let _ = done.send(Ok(number));
            }
        }
        Err(error) => fail(waiting.into_iter(), &error),
    }
}

fn fail(waiting: impl Iterator<Item = oneshot::Sender<Result<u64, ApiError>>>, error: &io::Error) {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on the disk of the state directory, then try again"
        }
        _ => "check the disk of the state directory, then try again",
    };
    let message = "the audit record cannot be written; nothing was changed";
    let refused = ApiError::new(ErrorKind::Unavailable, message, hint).because(error);
    for done in waiting {
        // Whoever waited may have gone.
        let _ = done.send(Err(refused.clone()));
    }
}

#[cfg(test)]
mod tests;
