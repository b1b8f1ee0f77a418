//! Observation of VMs' processes, and state kept from earlier daemons.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use taut_api::Name;
use taut_api::event::Level;
use taut_api::vm::Power;
use taut_plan::Plan;
use taut_plan::facts::MachineSize;

use super::{Reconciler, dense};
use crate::inbox::Message;
use crate::store::Change;
use crate::vms::End;

/// Stack size of a thread that only waits, in bytes.
const WATCH_STACK: usize = 64 << 10;

impl Reconciler {
    /// Reads from the store what earlier daemons attached, and the state of dense mode.
    pub(super) fn recall(&self) -> anyhow::Result<()> {
        let mut seen = self.board.lock();
        for (subject, what) in self.store.remembered()? {
            if subject == dense::SUBJECT {
                seen.observed.tune = serde_json::from_str(&what)?;
                continue;
            }
            if subject.starts_with("host/") {
                // Read when the daemon started.
                continue;
            }
            let (kind, name) = subject.split_once('/').unwrap_or((&subject, ""));
            let name: Name = name.parse()?;
            match kind {
                "netns" => drop(seen.observed.netns.insert(name, serde_json::from_str(&what)?)),
                "external" => drop(seen.observed.external.insert(name, serde_json::from_str(&what)?)),
                "netdev" => drop(seen.observed.netdevs.insert(name, serde_json::from_str(&what)?)),
                "uplink" => drop(seen.observed.uplinks.insert(name, serde_json::from_str(&what)?)),
                _ => anyhow::bail!("the store remembers `{subject}`, which this version does not know"),
            }
        }
        Ok(())
    }

    /// Notes the sizes of running VMs that an earlier version of the daemon did not record.
    pub(super) fn note_sizes(&mut self) {
        let state = self.store.state();
        let size = |name: &Name| state.desired.vms.get(name).map(|vm| MachineSize::of(&vm.vm));
        self.vms.record_missing_sizes(size);
    }

    /// Updates the VMs' processes on the board.
    pub(super) fn observe_vms(&self) {
        loop {
            let cleared = self.board.lock().failures_cleared;
            let (vms, starts) = (self.vms.seen(), self.vms.start_steps());
            let mut seen = self.board.lock();
            // A failure that a request has cleared meanwhile must not come back.
            if seen.failures_cleared == cleared {
                seen.observed.vms = vms;
                seen.vms_observed += 1;
                seen.starts = starts;
                return;
            }
        }
    }

    /// Wakes the loop when the process behind `watch` ends. Each watch has a thread, which costs a
    /// small stack and sleeps all the time.
    pub(super) fn watch(&self, name: &Name, watch: OwnedFd) {
        let inbox = self.inbox.clone();
        let waiting = std::thread::Builder::new().name(format!("watch-{name}")).stack_size(WATCH_STACK);
        let thread = waiting.spawn(move || {
            let mut ended = [PollFd::new(&watch, PollFlags::IN)];
            while poll(&mut ended, None) == Err(Errno::INTR) {}
            inbox.send(Message::Wake);
        });
        if let Err(error) = thread {
            // Each round observes all processes anyway.
            tracing::warn!(vm = %name, %error, "its process cannot be watched");
        }
    }

    /// Raises events for VMs whose process has ended.
    pub(super) fn notice_ends(&mut self) {
        for name in self.vms.running() {
            let Some(end) = self.vms.ended(&name) else { continue };
            let subject = format!("vm/{name}");
            self.board.lock().forget_problems_of_process(&name);
            match end {
                End::Stopped => self.store.event(Level::Info, &subject, "vm.stopped", "stopped as asked"),
                End::ShutDown => {
                    self.store.event(Level::Info, &subject, "vm.stopped", "the guest shut itself down");
                    self.switch_off(&name);
                }
                End::Failed(reason) => self.store.event(Level::Error, &subject, "vm.failed", &reason),
            }
        }
    }

    /// Sets a VM to off after its guest shut down, so that it is not started again.
    fn switch_off(&self, name: &Name) {
        let written = self.store.write(|state| {
            let mut vm = state.desired.vms.get(name).cloned();
            if let Some(vm) = &mut vm {
                vm.power = Power::Off;
            }
            Ok(Change::Vm(name.clone(), vm))
        });
        if let Err(error) = written {
            self.vms.fail(name, &format!("the guest shut itself down, which could not be noted: {error}"));
        }
    }

    /// Notes the VMs that the plan refuses, and raises an event for each new reason.
    pub(super) fn note_refusals(&self, plan: &Plan) {
        let refusals =
            plan.refusals.iter().map(|refusal| (refusal.vm.clone(), refusal.reason.clone())).collect();
        let before = std::mem::replace(&mut self.board.lock().refusals, refusals);
        for refusal in &plan.refusals {
            if before.get(&refusal.vm) != Some(&refusal.reason) {
                let subject = format!("vm/{}", refusal.vm);
                self.store.event(Level::Warning, &subject, "vm.not-placed", &refusal.reason);
            }
        }
    }
}
