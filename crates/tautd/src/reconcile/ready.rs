//! The end of a QEMU's start.
//!
//! QEMU answers commands of its monitor once it has opened all disks and made all devices. A QEMU
//! that cannot do so ends before.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use taut_api::Name;
use taut_vm::qmp::Qmp;

use super::Reconciler;
use crate::inbox::Message;

/// Maximum time that QEMU's monitor may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts to reach the monitor.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Reconciler {
    /// Waits on another thread until a QEMU has finished starting, or its process has ended.
    /// `watch` becomes readable when process `pid` ends.
    pub(super) fn await_ready(&self, name: Name, pid: u32, watch: OwnedFd) {
        let (monitor, inbox) = (self.vms.paths(&name).qmp(), self.inbox.clone());
        std::thread::spawn(move || {
            let mut ended = [PollFd::new(&watch, PollFlags::IN)];
            while Qmp::connect(&monitor, PATIENCE).is_err() {
                if !matches!(poll(&mut ended, Some(&PAUSE)), Ok(0) | Err(Errno::INTR)) {
                    return;
                }
            }
            inbox.send(Message::Ready(name, pid));
        });
    }
}
