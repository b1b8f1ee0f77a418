//! Stopping a VM: its power button, then SIGTERM, then SIGKILL.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use taut_api::Name;
use taut_api::vm::VmKind;
use taut_vm::qmp::Qmp;

use super::{Running, Vms};
use crate::monitor_thread;
use crate::process::Process;

/// Maximum time that QEMU's monitor may take to answer.
const MONITOR_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two presses of the power button. A guest that is still booting misses the first
/// ones.
const PRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two attempts to reach the monitor.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);
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
                let process = match vm.process.duplicate() {
                    Ok(process) => process,
                    Err(error) => {
                        tracing::warn!(vm = %name, %error, "its power button cannot be pressed");
                        return;
                    }
                };
                let pressed = name.clone();
                monitor_thread::spawn(name, "pressing its power button", move || {
                    press_until(until, &pressed, &process, &monitor);
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

/// Presses the power button of this process until it has ended, or until this time. The monitor
/// serves one client at a time, so another one may have it at first.
fn press_until(until: Instant, vm: &Name, process: &Process, monitor: &Path) {
    let (mut pressed, mut last_error) = (false, None);
    while Instant::now() < until && !process.has_ended(Duration::ZERO) {
        match Qmp::connect(monitor, MONITOR_PATIENCE) {
            // A later process of this VM has another connection.
            Ok(mut qmp) if !process.has_ended(Duration::ZERO) => {
                while Instant::now() < until && qmp.powerdown().is_ok() {
                    pressed = true;
                    process.has_ended(PRESS_INTERVAL);
                }
            }
            Ok(_) => return,
            Err(error) => last_error = Some(error),
        }
        process.has_ended(CONNECT_INTERVAL);
    }
    if let Some(error) = last_error.filter(|_| !pressed) {
        tracing::warn!(%vm, %error, "its power button could not be pressed");
    }
}

impl Running {
    /// Sends SIGTERM, on which QEMU and microguests flush their data and end.
    fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
        self.stopping = Some(Stopping::Told(Instant::now() + LAST_GRACE));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn the_power_button_is_pressed_once_the_monitor_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let monitor = dir.path().join("qmp");
        let listener = UnixListener::bind(&monitor).unwrap();
        let process = Process::spawn(Command::new("sleep").arg("60"), &[]).unwrap();
        let pressed = process.duplicate().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let path = monitor.clone();
        let presser = thread::spawn(move || press_until(until, &"m1".parse().unwrap(), &pressed, &path));
        // Another client has it.
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        writeln!(stream, r#"{{"QMP": {{}}}}"#).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        for command in ["qmp_capabilities", "system_powerdown"] {
            assert!(lines.next().unwrap().contains(command), "{command}");
            writeln!(stream, r#"{{"return": {{}}}}"#).unwrap();
        }
        process.signal(Signal::KILL);
        presser.join().unwrap();
        // A later process with the same monitor is left alone.
        press_until(until, &"m1".parse().unwrap(), &process, &monitor);
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
        process.kill(Duration::from_secs(10));
    }
}
