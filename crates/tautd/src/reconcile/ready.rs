//! The end of a QEMU's start.
//!
//! QEMU answers commands of its monitor once it has opened all disks and made all devices. A QEMU
//! that cannot do so ends before.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use taut_api::Name;
use taut_vm::qmp::{MonitorSocket, Qmp};

use super::Reconciler;
use crate::inbox::Message;
use crate::monitor_thread;

/// Maximum time to connect, and for each answer that follows QEMU's greeting.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts to reach the monitor.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Reconciler {
    /// Waits on another thread until a QEMU has finished starting, or its process has ended.
    /// `watch` becomes readable when process `pid` ends. A QEMU that cannot be waited for counts as
    /// started.
    pub(super) fn await_ready(&self, name: Name, pid: u32, watch: io::Result<OwnedFd>) {
        let (monitor, inbox) = (self.vms.paths(&name).qmp(), self.inbox.clone());
        let vm = name.clone();
        let spawned = watch.and_then(|watch| {
            monitor_thread::try_spawn(&name, move || {
                if has_started(&monitor, &watch) {
                    inbox.send(Message::Ready(vm, pid));
                }
            })
        });
        if let Err(error) = spawned {
            tracing::warn!(vm = %name, %error, "the end of its start cannot be awaited");
            self.inbox.send(Message::Ready(name, pid));
        }
    }
}

/// Waits for the monitor's greeting. Returns false if the process ends before.
fn has_started(monitor: &Path, watch: &OwnedFd) -> bool {
    loop {
        if let Ok(socket) = MonitorSocket::connect(monitor, PATIENCE) {
            // QEMU may need long for its greeting, which the process's end cuts short.
            let mut either = [PollFd::new(watch, PollFlags::IN), PollFd::new(&socket, PollFlags::IN)];
            while poll(&mut either, None) == Err(Errno::INTR) {}
            let has_ended = !either[0].revents().is_empty();
            if has_ended || Qmp::over(socket, PATIENCE).is_ok() {
                return !has_ended;
            }
        }
        let mut ended = [PollFd::new(watch, PollFlags::IN)];
        match poll(&mut ended, Some(&PAUSE)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return false,
            // Out of memory: QEMU cannot be waited for.
            Err(_) => return true,
        }
    }
}
