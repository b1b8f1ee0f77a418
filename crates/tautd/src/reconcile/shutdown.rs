//! The daemon's end, with or without everything that it runs.

use std::time::{Duration, Instant};

use taut_api::event::Level;

use super::Reconciler;

/// How long guests may take to shut down when everything is to end.
const GRACE: Duration = Duration::from_secs(5);
/// After this a VM's process is killed.
const LAST: Duration = Duration::from_secs(12);

impl Reconciler {
    pub(super) fn shut_down(&mut self, everything: bool) {
        let what = if everything { "the daemon ends with everything it runs" } else { "the daemon ends" };
        self.store.event(Level::Info, "daemon", "daemon.ending", what);
        self.probe = None;
        if everything {
            self.stop_vms();
            self.leave_host();
            // Before the devices go: the fabric holds them.
            self.fabric.end();
            self.detach_all();
            return;
        }
        self.leave_host();
        if self.board.lock().observed.fabric.ports.is_empty() && !self.vms.any_running() {
            self.fabric.end();
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
            self.vms.insist();
            self.notice_ends();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn detach_all(&mut self) {
        let seen = self.board.lock().observed.clone();
        for name in seen.netns.keys() {
            self.detach_netns(name);
        }
        for name in seen.external.keys() {
            self.detach_external(name);
        }
    }
}
