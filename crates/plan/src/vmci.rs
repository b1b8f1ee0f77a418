//! VMCI devices (SPEC VC-1 to VC-3): what the fabric is told of them, and which sockets lead to them.
//!
//! QEMU is the client of its device's socket and waits in its start until it is served: its VM is started once the fabric has
//! the listening socket. A microguest listens itself, like for its cards.

use taut_api::Name;
use taut_api::fabric::config::SocketConfig;
use taut_api::vm::{Power, VmDesired, VmKind};
use taut_api::vmci::VmciSpec;

use crate::{Action, Desired, Observed, Owner, Plan, Process, VmSeen};

/// A device for each VM that has one and is wanted, or runs with it. A VM that was started without one has none until it is
/// started again.
pub fn config(desired: &Desired, observed: &Observed) -> Vec<SocketConfig> {
    let devices = desired.vms.iter().filter_map(|(name, vm)| {
        let vmci = device(vm, process(observed, name))?;
        let owner = Owner::Vmci(name.clone());
        Some(SocketConfig {
            id: desired.numbers.port(&owner)?,
            owner: owner.to_string(),
            // Assigned when the document was written.
            cid: vmci.cid?,
            domains: vmci.domains.clone(),
            unrestricted: vmci.unrestricted,
            connections: vmci.most_connections(),
            half_open: vmci.most_half_open(),
        })
    });
    devices.collect()
}

/// Adds the actions for every device of a VM that is wanted, and for what devices left.
pub fn rule(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    for (name, seen) in &observed.vms {
        let Some(vm) = desired.vms.get(name) else { continue };
        let ours = seen.host_socket || (seen.vmci_socket && vm.vm.kind == VmKind::Qemu);
        if ours && device(vm, seen.process.as_ref()).is_none() {
            plan.actions.push(Action::RemoveVmciSockets { vm: name.clone() });
        }
    }
    if !observed.fabric_ready {
        return;
    }
    let none = VmSeen::default();
    for (name, vm) in desired.vms.iter().filter(|(_, vm)| vm.power == Power::On) {
        let seen = observed.vms.get(name).unwrap_or(&none);
        let process = seen.process.as_ref();
        let Some(port) = device(vm, process).and(desired.numbers.port(&Owner::Vmci(name.clone()))) else {
            continue;
        };
        let Some(state) = observed.ports.get(&port) else { continue };
        let vm_name = name.clone();
        if !state.host_socket || !seen.host_socket {
            plan.actions.push(Action::ListenForHost { vm: vm_name.clone(), port });
        }
        let runs = process.is_some_and(|process| !process.stopping);
        match vm.vm.kind {
            VmKind::Micro if runs && seen.vmci_socket && !state.attached => {
                plan.actions.push(Action::ConnectVmci { vm: vm_name, port });
            }
            VmKind::Qemu if !state.attached || !(state.session || seen.vmci_socket) => {
                plan.actions.push(Action::ListenForVmci { vm: vm_name, port });
            }
            VmKind::Qemu if runs && !state.session => {
                plan.actions.push(Action::ReplugVmci { vm: vm_name });
            }
            _ => {}
        }
    }
}

/// May QEMU be started? Not before it finds somebody at its device's socket.
pub fn may_start(desired: &Desired, observed: &Observed, name: &Name, vm: &VmDesired) -> bool {
    let port = desired.numbers.port(&Owner::Vmci(name.clone()));
    let listened = || {
        let there = observed.vms.get(name).is_some_and(|seen| seen.vmci_socket);
        there && port.is_some_and(|port| observed.attached(port))
    };
    vm.vm.vmci.is_none() || vm.vm.kind == VmKind::Micro || listened()
}

/// The device that a VM has, or will have once it is started.
fn device<'a>(vm: &'a VmDesired, process: Option<&Process>) -> Option<&'a VmciSpec> {
    let there = process.map_or(vm.power == Power::On, |process| process.vmci);
    vm.vm.vmci.as_ref().filter(|_| there)
}

fn process<'a>(observed: &'a Observed, name: &Name) -> Option<&'a Process> {
    observed.vms.get(name)?.process.as_ref()
}
