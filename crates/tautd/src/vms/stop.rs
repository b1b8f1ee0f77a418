//! Stopping a VM: ask, wait, insist.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use taut_api::Name;
use taut_api::vm::VmKind;
use taut_vm::qmp::Qmp;

use super::{Running, Vms};

/// How long QEMU's monitor may take to answer.
const MONITOR_PATIENCE: Duration = Duration::from_secs(2);
/// Between two presses of the power button: a guest that is still booting has nobody who hears the first.
const PRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Between the order to end and the kill.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// How far stopping has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    /// The guest was asked; at this time its process is told to end.
    Asked(Instant),
    /// The process was told to end; at this time it is killed.
    Told(Instant),
    /// Killed; the kernel is at it.
    Killed,
}

impl Vms {
    /// Presses the guest's power button; tells the process to end when the guest has not shut down within `grace`.
    /// A microguest has no power button: its process is told at once.
    pub(crate) fn stop(&mut self, name: &Name, grace: Duration) {
        let monitor = self.paths(name).qmp();
        let Some(vm) = self.running.get_mut(name) else { return };
        match vm.kind {
            VmKind::Micro => vm.tell(),
            VmKind::Qemu => {
                let until = Instant::now() + grace;
                vm.stopping = Some(Stopping::Asked(until));
                let name = name.clone();
                // The monitor may be slow to answer; nothing else has to wait for it.
                std::thread::spawn(move || {
                    // One connection for all presses, so that they reach this process and no later one of the same VM.
                    let mut qmp = match Qmp::connect(&monitor, MONITOR_PATIENCE) {
                        Ok(qmp) => qmp,
                        Err(error) => {
                            tracing::warn!(vm = %name, %error, "its power button could not be pressed");
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

    /// Ends the process now.
    pub(crate) fn kill(&mut self, name: &Name) {
        if let Some(vm) = self.running.get_mut(name) {
            vm.process.signal(Signal::KILL);
            vm.stopping = Some(Stopping::Killed);
        }
    }

    /// Insists where the time has come.
    pub(crate) fn insist(&mut self) {
        let now = Instant::now();
        for vm in self.running.values_mut() {
            match vm.stopping {
                Some(Stopping::Asked(until)) if now >= until => vm.tell(),
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
    /// SIGTERM: QEMU and microguests flush what they have and end.
    fn tell(&mut self) {
        self.process.signal(Signal::TERM);
        self.stopping = Some(Stopping::Told(Instant::now() + LAST_GRACE));
    }
}
