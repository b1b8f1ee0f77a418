//! Waiting for conditions instead of times.

use std::thread::sleep;
use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_secs(180);

/// Tries `condition` until it returns a value. Panics with `what` after three minutes, far beyond
/// any sound run on a busy machine.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONGEST;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "timed out after {} s waiting until {what}", LONGEST.as_secs());
        sleep(Duration::from_millis(20));
    }
}
