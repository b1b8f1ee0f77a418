//! Waiting for conditions instead of times.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Tries `condition` until it holds a value; panics with `what` after some minutes, far beyond any sound run on a busy
/// machine.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(180);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "never happened: {what}");
        sleep(Duration::from_millis(20));
    }
}
