//! Waiting for conditions instead of times.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Tries `condition` until it holds a value; panics with `what` after a minute, far beyond any sound run.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "never happened: {what}");
        sleep(Duration::from_millis(20));
    }
}
