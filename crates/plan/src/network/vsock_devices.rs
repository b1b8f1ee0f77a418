//! VMCI devices (VC-1 to VC-3): their configuration in the fabric, and the sockets that lead to
//! them.
//!
//! QEMU connects to its device's socket and does not finish starting before the fabric serves it.
//! Therefore a VM is started only after the fabric has the listening socket. A microguest listens
//! itself, as it does for its vNICs.

use taut_api::Name;
use taut_api::fabric::config::SocketConfig;
use taut_api::vm::{Power, VmDesired, VmKind};
use taut_api::vmci::VmciSpec;

use super::front_ends::limit_front_end;
use crate::facts::{Action, Desired, Observed, Owner, Process, VmSeen};

/// Configures the device of each VM that is wanted on or runs with one. A VM that was started
/// without a device has none until its next start.
pub fn configure_vsock_devices(desired: &Desired, observed: &Observed) -> Vec<SocketConfig> {
    let devices = desired.vms.iter().filter_map(|(name, vm)| {
        let vmci = device(vm, observed.process(name))?;
        let owner = Owner::Vmci(name.clone());
        Some(SocketConfig {
            id: desired.numbers.port(&owner)?,
            owner: owner.to_string(),
            // The context ID was assigned when the document was written.
            cid: vmci.cid?,
            domains: vmci.domains.clone(),
            unrestricted: vmci.unrestricted,
            connections: vmci.most_connections(),
            half_open: vmci.most_half_open(),
            front_end: limit_front_end(desired, observed, &owner),
            queue_pairs: observed.process(name).and_then(|process| process.queue_pairs),
        })
    });
    devices.collect()
}

/// The actions that connect each wanted device to the fabric, and those that remove the sockets of
/// devices that are gone.
pub fn serve_vsock_devices(desired: &Desired, observed: &Observed) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, seen) in &observed.vms {
        let Some(vm) = desired.vms.get(name) else { continue };
        let ours = seen.host_socket || (seen.vmci_socket && vm.vm.kind == VmKind::Qemu);
        if ours && device(vm, seen.process.as_ref()).is_none() {
            actions.push(Action::RemoveVmciSockets { vm: name.clone() });
        }
    }
    if !observed.fabric.ready {
        return actions;
    }
    let none = VmSeen::default();
    for (name, vm) in desired.vms_on() {
        let seen = observed.vms.get(name).unwrap_or(&none);
        let process = seen.process.as_ref();
        let Some(port) = device(vm, process).and(desired.numbers.port(&Owner::Vmci(name.clone()))) else {
            continue;
        };
        let Some(state) = observed.fabric.ports.get(&port) else { continue };
        let vm_name = name.clone();
        if !state.host_socket || !seen.host_socket {
            actions.push(Action::ListenForHost { vm: vm_name.clone(), port });
        }
        if observed.is_quarantined(port) {
            continue;
        }
        let runs = process.is_some_and(|process| !process.stopping);
        match vm.vm.kind {
            VmKind::Micro if runs && seen.vmci_socket && !state.attached => {
                actions.push(Action::ConnectVmci { vm: vm_name, port });
            }
            VmKind::Qemu if !state.attached || !(state.session || seen.vmci_socket) => {
                actions.push(Action::ListenForVmci { vm: vm_name, port });
            }
            VmKind::Qemu if runs && !state.session => {
                actions.push(Action::ReplugVmci { vm: vm_name });
            }
            _ => {}
        }
    }
    actions
}

/// Returns whether the VM can start: QEMU with a device needs a listening socket first.
pub fn can_start(desired: &Desired, observed: &Observed, name: &Name, vm: &VmDesired) -> bool {
    let port = desired.numbers.port(&Owner::Vmci(name.clone()));
    let listened = || {
        let there = observed.vms.get(name).is_some_and(|seen| seen.vmci_socket);
        there && port.is_some_and(|port| observed.attached(port))
    };
    vm.vm.vmci.is_none() || vm.vm.kind == VmKind::Micro || listened()
}

/// The device that a running VM has, or that a VM will have when it starts.
fn device<'a>(vm: &'a VmDesired, process: Option<&Process>) -> Option<&'a VmciSpec> {
    let there = process.map_or(vm.power == Power::On, |process| process.vmci);
    vm.vm.vmci.as_ref().filter(|_| there)
}
