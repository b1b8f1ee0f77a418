//! Requests to end this program: Ctrl-C and SIGTERM.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Returns true once this program was asked to end.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// Has SIGINT, SIGTERM and SIGHUP noted instead of ending this program, so that it can clean up.
/// The signals are handled and not blocked: programs that it starts would inherit a blocked signal,
/// and could not be asked to end.
pub fn watch_for_interrupts() -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut requests = signal(kind)?;
        runtime.spawn(async move {
            while requests.recv().await.is_some() {
                IS_INTERRUPTED.store(true, Ordering::Relaxed);
            }
        });
    }
    drop(inside);
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    Ok(())
}
