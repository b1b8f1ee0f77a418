//! Signals that a timer sends.

use std::time::Duration;

use super::answer;

/// Time between two signals of [`with_alarms`], and before the first one.
const INTERVAL: Duration = Duration::from_millis(30);

/// Calls a function that a signal interrupts. The process gets `SIGALRM` again and again until the
/// function returns: a signal that comes before the function waits interrupts nothing.
pub(crate) fn with_alarms<T>(call: impl FnOnce() -> T) -> T {
    let _alarms = Alarms::every(INTERVAL);
    call()
}

/// A timer that sends this process `SIGALRM` at an interval until it is dropped. A process has only
/// one.
pub(crate) struct Alarms(());

impl Alarms {
    pub(super) fn every(interval: Duration) -> Self {
        set_timer(interval);
        Self(())
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        set_timer(Duration::ZERO);
    }
}

/// Sets the timer of `setitimer(2)`. Zero disarms it.
fn set_timer(interval: Duration) {
    let interval =
        libc::timeval { tv_sec: interval.as_secs().cast_signed(), tv_usec: interval.subsec_micros().into() };
    let time = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the structure is this frame's.
    answer(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const time, std::ptr::null_mut()) }).unwrap();
}
