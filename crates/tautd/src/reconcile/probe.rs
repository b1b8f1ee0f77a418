//! Probe for QEMU and KVM: runs a guest on a thread of its own to find out how guests run here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use taut_api::host::{Accelerator, AcceleratorKind};
use taut_vm::probe;

use super::Reconciler;
use crate::board::{Board, HostFacts};
use crate::inbox::{Inbox, Message};

/// Maximum time for the thread to end once it is told to. It needs milliseconds, unless QEMU hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// A probe in progress or finished. Dropping it ends its guest.
#[derive(Debug)]
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl Probe {
    /// Starts a probe.
    ///
    /// # Errors
    /// There is no room for another thread.
    fn start(board: Arc<Board>, inbox: Inbox) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (running, ended) = channel();
        let stopped = stop.clone();
        std::thread::Builder::new().name("probe".into()).spawn(move || {
            let _running = running;
            let host = run_probe(&stopped);
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            tracing::info!(accelerator = ?host.accelerator, qemu = ?host.qemu, "how guests run here");
            note(&board, host);
            inbox.send(Message::Wake);
        })?;
        Ok(Self { stop, ended })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // No message is ever sent: this returns when the thread has ended, or after the timeout.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// Notes on the board how guests run here.
fn note(board: &Board, host: HostFacts) {
    let mut seen = board.lock();
    seen.host = Some(host);
    seen.observed.host.probed = true;
}

fn run_probe(stop: &AtomicBool) -> HostFacts {
    match probe::qemu() {
        Ok(qemu) => HostFacts { accelerator: probe::accelerator(&qemu, stop), qemu: Some(qemu) },
        Err(error) => {
            let accelerator = Accelerator { kind: AcceleratorKind::Tcg, why: error.message };
            HostFacts { accelerator, qemu: None }
        }
    }
}

impl Reconciler {
    /// Starts a probe if the last one found no QEMU.
    pub(super) fn probe_if_needed(&mut self) {
        let missing = self.board.lock().host.as_ref().is_some_and(|host| host.qemu.is_none());
        if missing {
            self.probe();
        }
    }

    /// Starts a probe. It takes as long as starting a guest.
    pub(super) fn probe(&mut self) {
        let mut seen = self.board.lock();
        seen.host = None;
        seen.observed.host.probed = false;
        drop(seen);
        match Probe::start(self.board.clone(), self.inbox.clone()) {
            Ok(probe) => self.probe = Some(probe),
            Err(error) => {
                // The next start of a VM by a user probes again.
                let why = format!("this host could not be probed, because no thread can be started: {error}");
                let accelerator = Accelerator { kind: AcceleratorKind::Tcg, why };
                note(&self.board, HostFacts { accelerator, qemu: None });
            }
        }
    }
}
