//! Enforcement: makes the host as a [`HostPlan`] wants it, and reports what is in force.
//!
//! There is one operation, [`Enforcer::settle`]. Restoring the host is settling a plan whose VMs
//! want nothing. Everything that is changed is in the [ledger](crate::ledger) before it is changed,
//! so that the next [`Enforcer`] continues where a killed one stopped.

mod cards;
mod cpus;
mod devices;
mod groups;
mod memory;
mod priority;

use std::path::Path;
use std::time::Instant;

use taut_api::Name;
use taut_api::enforcement::{Controllers, HostPlan, HostReport, ProcessLimits, Unrecorded, VmReport};
use taut_api::passthrough::PciAddress;

use crate::ledger::{Ledger, LedgerError};
use cards::Cards;
use cpus::Cpus;
pub use devices::DeviceError;
use devices::Devices;
use groups::Groups;
use memory::MemoryMover;
use priority::RealtimePriority;

/// The parts that enforce a plan on one host, and what they last reported.
#[derive(Debug)]
pub struct Enforcer {
    cpus: Cpus,
    groups: Groups,
    priority: RealtimePriority,
    memory: MemoryMover,
    devices: Devices,
    cards: Cards,
    report: HostReport,
}

impl Enforcer {
    /// Prepares for the host whose file system starts at `root`.
    ///
    /// `scope` is the cpuset (cgroup v1) whose tasks make room for VMs, or the control group
    /// (cgroup v2) in which VMs' groups are made, unless it is the whole host. `ledger` has the
    /// changes of an earlier process.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub fn new(root: &Path, scope: Option<&Path>, ledger: &Ledger) -> Result<Self, LedgerError> {
        let mut enforcer = Self {
            cpus: Cpus::new(root, scope, ledger.clone())?,
            groups: Groups::new(root, scope, ledger.clone())?,
            priority: RealtimePriority::new(root, ledger.clone())?,
            memory: MemoryMover::new(root),
            devices: Devices::new(root, ledger.clone())?,
            cards: Cards::new(root, ledger.clone())?,
            report: HostReport::default(),
        };
        enforcer.complete_report();
        Ok(enforcer)
    }

    /// Returns the controllers of control groups that this host can use.
    pub fn controllers(&self) -> Controllers {
        self.groups.controllers()
    }

    /// Returns the last report; before the first plan, what an earlier process left in force.
    pub const fn report(&self) -> &HostReport {
        &self.report
    }

    /// Returns whether nothing on the host is changed.
    pub fn is_idle(&self) -> bool {
        let has_vms = !(self.cpus.is_idle() && self.groups.is_idle() && self.priority.is_idle());
        !has_vms && self.devices.is_idle() && self.cards.is_idle()
    }

    /// Returns whether vCPUs are bound, or files are changed for them.
    pub fn places_vcpus(&self) -> bool {
        !self.cpus.is_idle()
    }

    /// Returns whether [`Enforcer::settle`] has memory to move now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.memory.is_due(now)
    }

    /// Takes a PCI device from the host for a VM that is about to start. The device is given back
    /// when a plan no longer has the VM.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be written, or the kernel refuses; the device stays
    /// with, or returns to, the host.
    pub fn take_device(&mut self, vm: &Name, address: PciAddress) -> Result<(), DeviceError> {
        let taken = self.devices.take(vm, address);
        self.complete_report();
        taken
    }

    /// Limits a VM's process that waits for its program. The next plan has the same process and
    /// limits, and the report on it names the limits that are not in force.
    pub fn limit(&mut self, vm: &Name, pid: u32, limits: &ProcessLimits) {
        // The next report says what cannot be recorded, and the ledger's error.
        let _ = self.groups.limit(vm, pid, limits, Instant::now());
    }

    /// Makes the host as the plan wants it, and reports what is in force.
    ///
    /// The order matters: a VM's group exists before its partition is made below it, and is removed
    /// after that. Real-time priority is settled last, when all processes are in their final
    /// groups. Threads lose that priority while they change groups, because a new group has no
    /// real-time budget.
    pub fn settle(&mut self, plan: &HostPlan) -> HostReport {
        let now = Instant::now();
        self.report.unrecorded.clear();
        self.report.greedy.clear();
        self.priority.pause(self.groups.arriving(plan));
        self.step("control groups", |parts, report| parts.groups.make(plan, now, report));
        if !self.report.unrecorded.is_empty() {
            self.groups.note_unrecorded(plan, &mut self.report);
        }
        self.devices.give_back_unused(plan, &mut self.report);
        let interrupts = self.devices.interrupts(plan);
        self.step("exclusive pCPUs", |parts, report| parts.cpus.settle(plan, &interrupts, report));
        self.priority.pause(self.groups.leaving(plan));
        self.groups.watch(plan, now, &mut self.report);
        self.step("control groups", |parts, _| parts.groups.clear(plan));
        self.step("real-time priority", |parts, report| parts.priority.settle(plan, now, report));
        self.memory.step(plan, now, &mut self.report);
        self.step(cards::WHAT, |parts, report| parts.cards.settle(plan, now, report));
        cards::note_unrecorded(plan, &mut self.report);
        self.complete_report();
        self.report.clone()
    }

    /// Runs a part, which updates the report unless the ledger could not be written.
    fn step(
        &mut self,
        what: &'static str,
        part: impl FnOnce(&mut Self, &mut HostReport) -> Result<(), LedgerError>,
    ) {
        let mut next = self.report.clone();
        match part(self, &mut next) {
            Ok(()) => self.report = next,
            Err(error) => self.report.unrecorded.push(Unrecorded { what, causes: causes(&error) }),
        }
    }

    /// Updates the parts of the report that the ledger determines, and drops VMs without content.
    fn complete_report(&mut self) {
        for vm in self.report.vms.values_mut() {
            vm.cpus.clear();
        }
        for (name, cpus) in self.cpus.owned() {
            self.report.vms.entry(name.clone()).or_default().cpus.clone_from(cpus);
        }
        self.report.vms.retain(|_, vm| *vm != VmReport::default());
        self.report.devices = self.devices.taken();
    }
}

/// Returns an error and its sources, outermost first.
fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
