//! Waiting for devices, which appear some time after their drivers were loaded.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time that a device may take to appear.
const PATIENCE: Duration = Duration::from_secs(10);

/// Calls `find` until it finds something. Fails if it finds nothing in time.
pub(crate) fn eventually<T>(mut find: impl FnMut() -> io::Result<Option<T>>, what: &str) -> io::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find()? {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{what} did not appear")));
        }
        sleep(Duration::from_millis(5));
    }
}
