//! One file a noun: its arguments, what it asks the daemon, how the answer looks.

mod agent;
pub(crate) mod check;
mod console;
pub(crate) mod daemon;
pub(crate) mod docs;
pub(crate) mod events;
pub(crate) mod host;
pub(crate) mod latency;
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

/// How long a condition may take: a guest under emulation with a full disk boots in less.
const PATIENCE: Duration = Duration::from_secs(180);

/// Asks again and again until there is an answer, with a spinner that names what is waited for.
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
                format!("after {} s it is still not so that {what}", PATIENCE.as_secs()),
                "`taut events` shows what happened",
            ));
        }
        sleep(Duration::from_millis(25));
    }
}
