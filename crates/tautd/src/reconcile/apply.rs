//! The plan's actions. Repeating an action does no harm.

use std::collections::BTreeMap;
use std::time::Duration;

use taut_api::Name;
use taut_api::fabric::PortId;
use taut_api::fabric::message::Attachment;
use taut_plan::Owner;
use taut_plan::facts::Action;
use taut_plan::placement::problem::Grant;

use super::Reconciler;
use crate::interface::Role;

/// Time that a guest has to shut down before its process is told to end.
const GRACE: Duration = Duration::from_secs(30);

impl Reconciler {
    /// Applies an action. `grants` are the exclusive pCPUs of VMs in the plan.
    pub(super) fn apply(&mut self, action: Action, grants: &BTreeMap<Name, Grant>) {
        match action {
            Action::StartVm(name) => self.start_vm(&name, grants.get(&name)),
            Action::StopVm(name) => self.vms.stop(&name, GRACE),
            Action::RemoveVm(name) => self.remove_vm(&name),
            Action::ConnectNic { vm, index, port } => self.connect_nic(&vm, index, port),
            Action::ListenForVmci { vm, port } => self.listen_for_vsock(&vm, port),
            Action::ConnectVmci { vm, port } => self.connect_vsock(&vm, port),
            Action::ListenForHost { vm, port } => self.listen_for_host(&vm, port),
            Action::RemoveVmciSockets { vm } => self.vms.remove_vsock_sockets(&vm),
            Action::LimitDisk(name) => self.limit_disk(&name),
            Action::AddQueuePairs { vm, size } => self.add_queue_pairs(&vm, size),
            Action::SetLink { vm, index, link } => self.set_link(&vm, index, link),
            Action::ReplugVmci { vm } => self.replug_vsock(&vm),
            Action::AttachNetns { name, port } => {
                self.try_attaching(&Owner::Netns(name.clone()), |this| this.attach_netns(&name, port));
            }
            Action::AttachExternal { name, port } => {
                self.try_attaching(&Owner::External(name.clone()), |this| this.attach_external(&name, port));
            }
            Action::AttachUplink { name, port } => {
                self.try_attaching(&Owner::Uplink(name.clone()), |this| this.attach_uplink(&name, port));
            }
            Action::AttachNetdev { name, port } => {
                self.try_attaching(&Owner::Netdev(name.clone()), |this| this.attach_netdev(&name, port));
            }
            Action::DetachNetdev(name) => self.detach_interface(Role::Port, &name),
            Action::DetachUplink(name) => self.detach_interface(Role::Uplink, &name),
            Action::DetachNetns(name) => self.detach_netns(&name),
            Action::DetachExternal(name) => self.detach_external(&name),
            Action::SetMtu(Owner::Netns(name)) => self.set_netns_mtu(&name),
            Action::SetMtu(Owner::Netdev(name)) => self.set_interface_mtu(Role::Port, &name),
            Action::SetMtu(Owner::Uplink(name)) => self.set_interface_mtu(Role::Uplink, &name),
            // Guests are told when they start.
            Action::SetMtu(Owner::Nic(..) | Owner::Vmci(_) | Owner::External(_)) => {}
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
        if !self.is_fabric_ready() {
            return;
        }
        match self.vms.connect_nic(vm, index) {
            Ok(socket) => self.fabric.attach(port, Attachment::Connected, vec![socket]),
            Err(error) => tracing::debug!(%vm, index, %error, "the vNIC's socket is not ready"),
        }
    }

    /// Returns whether the fabric has the newest configuration and has told every port's state. The
    /// present plan may have changed that.
    pub(super) fn is_fabric_ready(&self) -> bool {
        self.board.lock().observed.fabric.ready
    }
}
