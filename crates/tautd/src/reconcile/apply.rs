//! The plan's actions, done. Each may be done again without harm.

use std::path::Path;
use std::time::{Duration, Instant};

use taut_api::event::Level;
use taut_api::fabric::PortId;
use taut_api::fabric::message::Attachment;
use taut_api::host::{Accelerator, AcceleratorKind};
use taut_api::{ApiError, Name};
use taut_host::topology;
use taut_plan::Owner;
use taut_plan::facts::{Action, ExternalSeen, NetnsSeen};
use taut_plan::placement::numa::place_memory;

use super::{ATTENTION, Reconciler};
use crate::board::HostFacts;
use crate::{external, netns};

/// How long a guest may take to shut down before its process is told to end.
const GRACE: Duration = Duration::from_secs(30);
/// How soon an attachment that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Reconciler {
    pub(super) fn apply(&mut self, action: Action) {
        match action {
            Action::StartVm(name) => self.start_vm(&name),
            Action::StopVm(name) => self.vms.stop(&name, GRACE),
            Action::RemoveVm(name) => self.remove_vm(&name),
            Action::ConnectNic { vm, index, port } => self.connect_nic(&vm, index, port),
            Action::ListenForVmci { vm, port } => self.listen_for_vmci(&vm, port),
            Action::ConnectVmci { vm, port } => self.connect_vmci(&vm, port),
            Action::ListenForHost { vm, port } => self.listen_for_host(&vm, port),
            Action::RemoveVmciSockets { vm } => self.vms.remove_vmci_sockets(&vm),
            Action::LimitDisk(name) => self.limit_disk(&name),
            Action::ReplugVmci { vm } => self.replug_vmci(&vm),
            Action::AttachNetns { name, port } => {
                self.try_attaching(&Owner::Netns(name.clone()), |this| this.attach_netns(&name, port));
            }
            Action::AttachExternal { name, port } => {
                self.try_attaching(&Owner::External(name.clone()), |this| this.attach_external(&name, port));
            }
            Action::DetachNetns(name) => self.detach_netns(&name),
            Action::DetachExternal(name) => self.detach_external(&name),
        }
    }

    fn start_vm(&mut self, name: &Name) {
        let Some(vm) = self.store.state().desired.vms.get(name).cloned() else { return };
        let subject = format!("vm/{name}");
        let host = self.board.lock().host.clone();
        // A microguest does not wait for the answer, and does not need it.
        let host = host.unwrap_or_else(|| HostFacts {
            accelerator: Accelerator { kind: AcceleratorKind::Tcg, why: "not known yet".to_owned() },
            qemu: None,
        });
        let grant = self.grants.get(name).cloned();
        let huge_pages = topology::free_huge_pages(Path::new("/"));
        let place = {
            let mut seen = self.board.lock();
            seen.observed.host.huge_pages = huge_pages;
            place_memory(&seen.observed.host, &vm.vm, grant.as_ref())
        };
        let taken = self.take_devices(name, &vm.vm);
        let exclusive = grant.is_some();
        match taken.and_then(|()| self.vms.start(name, &vm.vm, &host, &self.libexec, exclusive, &place)) {
            Ok(pid) => {
                self.store.event(Level::Info, &subject, "vm.started", &format!("started as process {pid}"));
                self.attentive_until = Instant::now() + ATTENTION;
                let watches = self.vms.watches().into_iter().filter(|(started, _)| started == name);
                for (name, watch) in watches {
                    self.watch(&name, watch);
                }
            }
            Err(error) => {
                self.vms.fail(name, &error.to_string());
                self.store.event(Level::Error, &subject, "vm.failed", &error.to_string());
            }
        }
    }

    fn remove_vm(&mut self, name: &Name) {
        if self.vms.running().contains(name) {
            self.vms.kill(name);
        } else {
            self.vms.remove_dir(name);
        }
    }

    fn connect_nic(&self, vm: &Name, index: usize, port: PortId) {
        if !self.ready() {
            return;
        }
        match external::connect_now(&self.vms.paths(vm).nic(index)) {
            Ok(socket) => self.fabric.attach(port, Attachment::Connected, socket),
            Err(error) => tracing::debug!(%vm, index, %error, "the card's socket is not ready"),
        }
    }

    /// Is every port's state known, and the newest configuration in force? This plan may just have changed it.
    pub(super) fn ready(&self) -> bool {
        self.board.lock().observed.fabric.ready
    }

    /// Does `attach` unless it failed a moment ago; says what is wrong, once.
    fn try_attaching(&mut self, owner: &Owner, attach: impl FnOnce(&Self) -> Result<(), ApiError>) {
        let document = owner.document();
        if !self.ready() || self.retries.get(&document).is_some_and(|&at| Instant::now() < at) {
            return;
        }
        let kind = if matches!(owner, Owner::Netns(_)) { "netns" } else { "external" };
        match attach(self) {
            Ok(()) => {
                self.retries.remove(&document);
                self.board.lock().problems.remove(&document);
                self.store.event(Level::Info, &document, &format!("{kind}.attached"), "attached to its port");
            }
            Err(error) => {
                self.retries.insert(document.clone(), Instant::now() + RETRY);
                let problem = error.to_string();
                let before = self.board.lock().problems.insert(document.clone(), problem.clone());
                if before.as_ref() != Some(&problem) {
                    self.store.event(Level::Warning, &document, &format!("{kind}.not-attached"), &problem);
                }
            }
        }
    }

    fn attach_netns(&self, name: &Name, port: PortId) -> Result<(), ApiError> {
        let state = self.store.state();
        let Some(spec) = state.desired.netns.get(name) else { return Ok(()) };
        let owner = Owner::Netns(name.clone());
        let made_before = self.board.lock().observed.netns.get(name).is_some_and(|seen| seen.made_netns);
        let made_netns = made_before || !netns::exists(&spec.netns);
        let seen = NetnsSeen { spec: spec.clone(), made_netns };
        self.store.remember(&owner.document(), &seen)?;
        self.board.lock().observed.netns.insert(name.clone(), seen);
        let tap = netns::attach(spec, spec.mac.unwrap_or_else(|| owner.derived_mac()))?;
        self.fabric.attach(port, Attachment::Tap { uso: tap.uso }, tap.device);
        Ok(())
    }

    fn attach_external(&self, name: &Name, port: PortId) -> Result<(), ApiError> {
        let state = self.store.state();
        let Some(spec) = state.desired.external.get(name) else { return Ok(()) };
        let seen = ExternalSeen { spec: spec.clone() };
        if self.board.lock().observed.external.get(name) != Some(&seen) {
            self.store.remember(&Owner::External(name.clone()).document(), &seen)?;
            self.board.lock().observed.external.insert(name.clone(), seen);
        }
        let (via, socket) = external::attach(spec)?;
        self.fabric.attach(port, via, socket);
        Ok(())
    }

    pub(super) fn detach_netns(&mut self, name: &Name) {
        let Some(seen) = self.board.lock().observed.netns.get(name).cloned() else { return };
        if seen.made_netns && self.hand_namespace_on(name, &seen) {
            return self.detach_netns(name);
        }
        let detached = netns::detach(&seen.spec, seen.made_netns);
        self.forget(&Owner::Netns(name.clone()), "netns", detached);
    }

    /// A namespace that was made for one attachment and has another now belongs to the other.
    fn hand_namespace_on(&self, name: &Name, seen: &NetnsSeen) -> bool {
        let mut board = self.board.lock();
        let shares =
            |(other, found): &(&Name, &mut NetnsSeen)| *other != name && found.spec.netns == seen.spec.netns;
        let Some((other, heir)) = board.observed.netns.iter_mut().find(shares) else { return false };
        heir.made_netns = true;
        let (other, heir) = (other.clone(), heir.clone());
        board.observed.netns.entry(name.clone()).and_modify(|seen| seen.made_netns = false);
        drop(board);
        if let Err(error) = self.store.remember(&Owner::Netns(other).document(), &heir) {
            tracing::warn!(%error, netns = seen.spec.netns, "that the namespace was made by taut could not be noted");
        }
        true
    }

    pub(super) fn detach_external(&mut self, name: &Name) {
        let Some(seen) = self.board.lock().observed.external.get(name).cloned() else { return };
        let detached = external::detach(&seen.spec);
        self.forget(&Owner::External(name.clone()), "external", detached);
    }

    /// After something was undone: it need not be remembered any more.
    fn forget(&mut self, owner: &Owner, kind: &str, undone: std::io::Result<()>) {
        let document = owner.document();
        let undone = undone.map_err(|error| error.to_string());
        let forgotten = undone.and_then(|()| self.store.forget(&document).map_err(|error| error.to_string()));
        let mut seen = self.board.lock();
        if let Err(problem) = forgotten {
            let before = seen.problems.insert(document.clone(), problem.clone());
            drop(seen);
            if before.as_ref() != Some(&problem) {
                self.store.event(Level::Warning, &document, &format!("{kind}.not-detached"), &problem);
            }
            return;
        }
        seen.problems.remove(&document);
        match owner {
            Owner::Netns(name) => drop(seen.observed.netns.remove(name)),
            Owner::External(name) => drop(seen.observed.external.remove(name)),
            Owner::Nic(..) | Owner::Vmci(_) => {}
        }
        drop(seen);
        self.retries.remove(&document);
        self.store.event(Level::Info, &document, &format!("{kind}.detached"), "detached from its port");
    }
}
