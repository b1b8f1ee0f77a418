//! One file per noun of the command line: arguments, requests to the daemon, and output.

mod agent;
pub(crate) mod audit;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod completions;
mod console;
pub(crate) mod daemon;
pub(crate) mod events;
pub(crate) mod host;
pub(crate) mod latency;
pub(crate) mod man;
pub(crate) mod mirror;
pub(crate) mod net;
pub(crate) mod netdev;
pub(crate) mod netns;
pub(crate) mod network_io;
pub(crate) mod pnic;
pub(crate) mod policy;
pub(crate) mod port;
pub(crate) mod portgroup;
pub(crate) mod shaping;
pub(crate) mod teaming;
pub(crate) mod token;
pub(crate) mod top;
mod tune;
pub(crate) mod uplink;
pub(crate) mod vm;
pub(crate) mod vmci;
pub(crate) mod vswitch;

use std::thread::sleep;
use std::time::{Duration, Instant};

use taut_api::error::ErrorKind;
use taut_api::link::LinkReason;
use taut_api::route::DaemonInfo;
use taut_api::{ApiError, Name, path};

use crate::client::Client;
use crate::progress::Progress;

/// Longest wait for a condition. A guest under emulation boots from a full disk in less.
const PATIENCE: Duration = Duration::from_secs(180);
/// Time after which the reason for a missing attachment counts as the final answer.
const FINAL: Duration = Duration::from_secs(3);
/// Longest wait until the daemon has worked on a change that it has accepted.
const SETTLED: Duration = Duration::from_secs(10);

/// Repeats `ask` until it returns an answer, and shows a spinner with the condition that is
/// awaited.
fn until<T>(what: &str, ask: impl FnMut() -> Result<Option<T>, ApiError>) -> Result<T, ApiError> {
    within(PATIENCE, what, ask)?.ok_or_else(|| timed_out(PATIENCE, what))
}

/// Like [`until`], for at most `patience`; returns nothing if there is no answer by then.
fn within<T>(
    patience: Duration,
    what: &str,
    mut ask: impl FnMut() -> Result<Option<T>, ApiError>,
) -> Result<Option<T>, ApiError> {
    within_steps(patience, what, |_| ask())
}

/// Like [`within`]; `ask` can show the present step of what is awaited.
fn within_steps<T>(
    patience: Duration,
    what: &str,
    mut ask: impl FnMut(&Progress) -> Result<Option<T>, ApiError>,
) -> Result<Option<T>, ApiError> {
    let progress = Progress::start(&format!("waiting until {what}"));
    let end = Instant::now() + patience;
    loop {
        let answer = ask(&progress)?;
        if answer.is_some() || Instant::now() > end {
            return Ok(answer);
        }
        sleep(Duration::from_millis(25));
    }
}

/// An answer of the daemon about an attachment.
struct Attachment<T> {
    document: T,
    is_attached: bool,
    /// Reason that it is not attached. A new one always has a reason at first, because the daemon
    /// has not processed it yet.
    reason: Option<String>,
}

/// Waits until `name` is attached, and returns its document. `hint` tells what to do about a reason
/// that lasts for [`FINAL`].
fn until_attached<T>(
    name: &Name,
    hint: &str,
    mut ask: impl FnMut() -> Result<Attachment<T>, ApiError>,
) -> Result<T, ApiError> {
    let asked = Instant::now();
    until(&format!("{name} is attached"), || match ask()? {
        Attachment { document, is_attached: true, .. } => Ok(Some(document)),
        // On a busy host, this may take long.
        Attachment { reason: Some(reason), .. } if reason == LinkReason::NothingAttached.as_str() => Ok(None),
        Attachment { reason: Some(reason), .. } if asked.elapsed() > FINAL => {
            Err(ApiError::new(ErrorKind::Unavailable, format!("cannot attach {name}: {reason}"), hint))
        }
        Attachment { .. } => Ok(None),
    })
}

/// Waits until the daemon has worked on a revision, for at most [`SETTLED`].
fn settle(client: &Client, revision: u64) {
    let _ = within(SETTLED, "the change is in force", || {
        let daemon: DaemonInfo = client.get(path::DAEMON)?;
        Ok((daemon.reconciled >= revision).then_some(()))
    });
}

fn timed_out(patience: Duration, what: &str) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("timed out after {} s waiting until {what}", patience.as_secs()),
        "`taut events` shows what happened",
    )
}
