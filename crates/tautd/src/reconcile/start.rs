//! Starting a VM.

use std::path::Path;
use std::time::Instant;

use taut_api::Name;
use taut_api::enforcement::ProcessLimits;
use taut_api::event::Level;
use taut_api::host::{Accelerator, AcceleratorKind};
use taut_host::kernel::topology;
use taut_plan::placement::numa::place_memory;
use taut_plan::placement::problem::Grant;

use super::{ATTENTION, Reconciler};
use crate::access::files;
use crate::board::HostFacts;
use crate::vms::Place;

impl Reconciler {
    /// Takes a VM's devices from the host and starts its process. `grant` are its exclusive pCPUs.
    pub(super) fn start_vm(&mut self, name: &Name, grant: Option<&Grant>) {
        let Some(vm) = self.store.state().desired.vms.get(name).cloned() else { return };
        let subject = format!("vm/{name}");
        let host = self.board.lock().host.clone();
        // Only a microguest is started before the probe has ended, and it needs no accelerator.
        let host = host.unwrap_or_else(|| HostFacts {
            accelerator: Accelerator { kind: AcceleratorKind::Tcg, why: "not known yet".to_owned() },
            qemu: None,
        });
        // Another VM of the same round may have taken huge pages.
        let huge_pages = topology::free_huge_pages(Path::new("/"));
        let place = {
            let mut seen = self.board.lock();
            seen.observed.host.huge_pages = huge_pages;
            place_memory(&seen.observed.host, &vm.vm, grant)
        };
        let owner = self.store.state().owner_of(name);
        let allowed = files::check_owner(&owner, &vm.vm);
        let taken = allowed.and_then(|()| self.take_devices(name, &vm.vm));
        let place = Place { exclusive: grant.is_some(), memory: &place };
        let enforcer = &mut self.enforcer;
        let limit = |pid, limits: &ProcessLimits| enforcer.limit(name, pid, limits);
        match taken.and_then(|()| self.vms.start(name, &vm.vm, &owner, &host, &place, limit)) {
            Ok(pid) => {
                self.store.event(Level::Info, &subject, "vm.started", &format!("started as process {pid}"));
                self.attentive_until = Instant::now() + ATTENTION;
                let watches = self.vms.watches().into_iter().filter(|(started, _)| started == name);
                for (name, watch) in watches {
                    self.watch(&name, watch);
                }
                let starting = self.vms.starting().into_iter().filter(|(started, ..)| started == name);
                for (name, pid, watch) in starting {
                    self.await_ready(name, pid, watch);
                }
            }
            Err(error) => {
                self.vms.fail(name, &error.to_string());
                self.store.event(Level::Error, &subject, "vm.failed", &error.to_string());
            }
        }
    }
}
