//! Stopping a VM: its power button, then SIGTERM, then SIGKILL.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use taut_api::Name;
use taut_api::vm::VmKind;
use taut_vm::qmp::Qmp;

use super::{Running, Vms};
use crate::monitor_thread;

/// Maximum time that QEMU's monitor may take to answer.
const MONITOR_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two presses of the power button. A guest that is still booting misses the first
/// ones.
const PRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Time between SIGTERM and SIGKILL.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// The state of a VM that is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    /// The power button is pressed until this time; SIGTERM follows.
    Asked(Instant),
    /// SIGTERM was sent; SIGKILL follows at this time.
    Told(Instant),
    /// SIGKILL was sent.
    Killed,
}

impl Vms {
    /// Presses the guest's power button. If the guest has not shut down within `grace`, its process
    /// gets SIGTERM. A microguest has no power button and gets SIGTERM at once.
    pub(crate) fn stop(&mut self, name: &Name, grace: Duration) {
        let monitor = self.paths(name).qmp();
        let Some(vm) = self.running.get_mut(name) else { return };
        match vm.facts.kind {
            VmKind::Micro => vm.terminate(),
            VmKind::Qemu => {
                let until = Instant::now() + grace;
                vm.stopping = Some(Stopping::Asked(until));
                let pressed = name.clone();
                monitor_thread::spawn(name, "pressing its power button", move || {
                    // All presses use one connection, so that none reaches a later process of this
                    // VM.
                    let mut qmp = match Qmp::connect(&monitor, MONITOR_PATIENCE) {
                        Ok(qmp) => qmp,
                        Err(error) => {
                            tracing::warn!(vm = %pressed, %error, "its power button could not be pressed");
                            return;
                        }
                    };
                    while Instant::now() < until && qmp.powerdown().is_ok() {
                        std::thread::sleep(PRESS_INTERVAL);
                    }
                });
            }
        }
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self, name: &Name) {
        if let Some(vm) = self.running.get_mut(name) {
            vm.process.signal(Signal::KILL);
            vm.stopping = Some(Stopping::Killed);
        }
    }

    /// Sends the next signal to each VM whose time to stop is over.
    pub(crate) fn enforce_stops(&mut self) {
        let now = Instant::now();
        for vm in self.running.values_mut() {
            match vm.stopping {
                Some(Stopping::Asked(until)) if now >= until => vm.terminate(),
                Some(Stopping::Told(until)) if now >= until => {
                    vm.process.signal(Signal::KILL);
                    vm.stopping = Some(Stopping::Killed);
                }
                _ => {}
            }
        }
    }
}

impl Running {
    /// Sends SIGTERM, on which QEMU and microguests flush their data and end.
    fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
        self.stopping = Some(Stopping::Told(Instant::now() + LAST_GRACE));
    }
}
