//! One file per noun of the command line: arguments, requests to the daemon, and output.

mod agent;
pub(crate) mod check;
pub(crate) mod completions;
mod console;
pub(crate) mod daemon;
pub(crate) mod events;
pub(crate) mod host;
pub(crate) mod latency;
pub(crate) mod man;
pub(crate) mod netns;
pub(crate) mod policy;
pub(crate) mod port;
pub(crate) mod portgroup;
pub(crate) mod shaping;
mod tune;
pub(crate) mod vm;
pub(crate) mod vmci;
pub(crate) mod vswitch;

use std::thread::sleep;
use std::time::{Duration, Instant};

use taut_api::ApiError;
use taut_api::error::ErrorKind;

use crate::progress::Progress;

/// Longest wait for a condition. A guest under emulation boots from a full disk in less.
const PATIENCE: Duration = Duration::from_secs(180);

/// Repeats `ask` until it returns an answer, and shows a spinner with the condition that is
/// awaited.
fn until<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>, ApiError>) -> Result<T, ApiError> {
    let _progress = Progress::start(&format!("waiting until {what}"));
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > end {
            return Err(ApiError::new(
                ErrorKind::Unavailable,
                format!("timed out after {} s waiting until {what}", PATIENCE.as_secs()),
                "`taut events` shows what happened",
            ));
        }
        sleep(Duration::from_millis(25));
    }
}
