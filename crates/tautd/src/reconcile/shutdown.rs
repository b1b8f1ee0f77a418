//! The end of the daemon, with or without everything that it runs.

use std::time::{Duration, Instant};

use taut_api::event::Level;

use super::Reconciler;
use crate::interface::Role;

/// Time that guests have to shut down when everything ends, and that processes which are being
/// launched have to be there.
const GRACE: Duration = Duration::from_secs(5);
/// Time after which a VM's process is killed.
const LAST: Duration = Duration::from_secs(12);
/// Time for the removal of sockets on which taut listened for front ends. The next daemon removes
/// those that remain.
const DETACHED: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Ends the daemon's work on the host. Without `everything`, VMs and their traffic continue.
    pub(super) fn shut_down(&mut self, everything: bool) {
        let what = if everything { "the daemon ends with everything it runs" } else { "the daemon ends" };
        self.store.event(Level::Info, "daemon", "daemon.ending", what);
        self.probe = None;
        self.vms.end_starts(GRACE);
        if everything {
            self.stop_vms();
            self.leave_host(true);
            // The fabric holds the devices, so it ends before they are removed.
            self.fabric.end();
            self.vms.console().end();
            self.detach_all();
            return;
        }
        self.leave_host(false);
        if self.board.lock().observed.fabric.ports.is_empty() && !self.vms.any_running() {
            self.fabric.end();
            self.vms.console().end();
        }
    }

    fn stop_vms(&mut self) {
        for name in self.vms.running() {
            self.vms.stop(&name, GRACE);
        }
        let last = Instant::now() + LAST;
        while self.vms.any_running() {
            if Instant::now() > last {
                self.vms.running().iter().for_each(|name| self.vms.kill(name));
            }
            self.vms.enforce_stops();
            self.finish_starts();
            self.notice_ends();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn detach_all(&mut self) {
        let seen = self.board.lock().observed.clone();
        for name in seen.netns.keys() {
            self.detach_netns(name);
        }
        for name in seen.netdevs.keys() {
            self.detach_interface(Role::Port, name);
        }
        for name in seen.uplinks.keys() {
            self.detach_interface(Role::Uplink, name);
        }
        let end = Instant::now() + DETACHED;
        let external = |this: &Self| this.board.lock().observed.external.clone();
        while !external(self).is_empty() && Instant::now() < end {
            for name in external(self).keys() {
                self.detach_external(name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
