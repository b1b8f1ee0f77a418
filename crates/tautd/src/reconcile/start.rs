//! Starting a VM: its files are prepared off the loop, and then its process is launched.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use taut_api::enforcement::ProcessLimits;
use taut_api::event::Level;
use taut_api::host::{Accelerator, AcceleratorKind};
use taut_api::vm::{Power, VmSpec};
use taut_api::{ApiError, Name};
use taut_host::kernel::topology;
use taut_plan::network::mtu::told_mtus;
use taut_plan::placement::numa::place_memory;
use taut_plan::placement::problem::Grant;

use super::{ATTENTION, Reconciler};
use crate::board::HostFacts;
use crate::vms::Place;

impl Reconciler {
    /// Has a VM's files prepared. Once they are, takes its devices from the host and launches its
    /// process. `grant` are its exclusive pCPUs.
    pub(super) fn start_vm(&mut self, name: &Name, grant: Option<&Grant>) {
        let state = self.store.state();
        let Some(vm) = state.desired.vms.get(name) else { return };
        if !self.vms.prepare(name, &vm.vm, &state.owner_of(name)) {
            return;
        }
        let launched = self.take_devices(name, &vm.vm).and_then(|()| self.launch_vm(name, &vm.vm, grant));
        if let Err(error) = launched {
            self.vms.abort_start(name);
            self.note_failed_start(name, &error);
        }
    }

    fn launch_vm(&mut self, name: &Name, spec: &VmSpec, grant: Option<&Grant>) -> Result<(), ApiError> {
        let host = self.board.lock().host.clone();
        // Only a microguest is started before the probe has ended, and it needs no accelerator.
        let host = host.unwrap_or_else(|| HostFacts {
            accelerator: Accelerator { kind: AcceleratorKind::Tcg, why: "not known yet".to_owned() },
            qemu: None,
        });
        // Pages that are taken between the two looks count twice, not never.
        let promised = self.vms.promised_pages();
        let huge_pages = topology::free_huge_pages(Path::new("/"));
        let place = {
            let mut seen = self.board.lock();
            seen.observed.host.huge_pages = huge_pages;
            place_memory(&seen.observed.host, spec, grant, &promised)
        };
        let mtus = told_mtus(&self.store.state().desired, name, spec);
        self.vms.launch(name, spec, &host, &Place { exclusive: grant.is_some(), memory: &place, mtus })
    }

    /// Gives up the starts of VMs that are not to be on. Limits processes that wait for
    /// their programs, and takes note of the starts that have come to a result. The next plan keeps
    /// the limits.
    pub(super) fn finish_starts(&mut self) {
        let state = self.store.state();
        let is_wanted = |name: &Name| state.desired.vms.get(name).is_some_and(|vm| vm.power == Power::On);
        self.vms.give_up_starts_unless(is_wanted);
        let enforcer = &mut self.enforcer;
        let limit = |name: &Name, pid, limits: &ProcessLimits| enforcer.limit(name, pid, limits);
        for (name, result) in self.vms.finish_starts(limit) {
            match result {
                Ok(pid) => self.note_start(&name, pid),
                Err(error) => self.note_failed_start(&name, &error),
            }
        }
    }

    /// Gives up the starts that the plan no longer has, because the host or the fabric has no room
    /// for the VM now. Otherwise their files would stay open, and a later start would use them
    /// although other files may have their names by then.
    pub(super) fn give_up_unplanned_starts(&mut self, planned: &BTreeSet<Name>) {
        self.vms.give_up_starts_unless(|name| planned.contains(name));
    }

    fn note_start(&mut self, name: &Name, pid: u32) {
        self.store.event(
            Level::Info,
            &format!("vm/{name}"),
            "vm.started",
            &format!("started as process {pid}"),
        );
        self.attentive_until = Instant::now() + ATTENTION;
        for (started, watch) in self.vms.watches() {
            if started == *name {
                self.watch(&started, watch);
            }
        }
        for (started, pid, watch) in self.vms.starting() {
            if started == *name {
                self.await_ready(started, pid, watch);
            }
        }
    }

    fn note_failed_start(&self, name: &Name, error: &ApiError) {
        self.vms.fail(name, &error.to_string());
        self.store.event(Level::Error, &format!("vm/{name}"), "vm.failed", &error.to_string());
    }
}
