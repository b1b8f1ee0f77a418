//! Requests to end this program: Ctrl-C and SIGTERM.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Returns true once this program was asked to end.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// Has SIGINT, SIGTERM and SIGHUP noted instead of ending this program, so that it can clean up.
/// Called before any other thread is started. Programs that it starts have their own signals.
pub fn watch_for_interrupts() -> nix::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    std::thread::spawn(move || {
        while signals.wait().is_ok() {
            IS_INTERRUPTED.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}
