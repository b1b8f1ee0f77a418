//! Processes of VMs: which to start, which to stop, which cards to connect.

use taut_api::Name;
use taut_api::vm::{Power, VmDesired, VmKind};

use crate::{Action, Desired, Observed, Owner, Plan, Process, Refusal, VmSeen, vmci};

/// Adds the actions for every VM that is described or observed.
pub fn rule(desired: &Desired, observed: &Observed, refused: &[Refusal], plan: &mut Plan) {
    for (name, seen) in &observed.vms {
        if !desired.vms.contains_key(name) {
            plan.actions.push(Action::RemoveVm(name.clone()));
        } else if desired.vms[name].power == Power::Off
            && seen.process.as_ref().is_some_and(|process| !process.stopping)
        {
            plan.actions.push(Action::StopVm(name.clone()));
        }
    }
    for (name, vm) in desired.vms.iter().filter(|(_, vm)| vm.power == Power::On) {
        let none = VmSeen::default();
        let seen = observed.vms.get(name).unwrap_or(&none);
        match &seen.process {
            Some(process) => connect(desired, observed, name, process, plan),
            None if may_start(vm, seen, observed)
                && vmci::may_start(desired, observed, name, vm)
                && !refused.iter().any(|refusal| refusal.vm == *name) =>
            {
                plan.actions.push(Action::StartVm(name.clone()));
            }
            None => {}
        }
    }
}

/// A failed VM waits for its user: starting again what just died would hide why, and busy the host.
fn may_start(vm: &VmDesired, seen: &VmSeen, observed: &Observed) -> bool {
    seen.failure.is_none() && (observed.probed || vm.vm.kind == VmKind::Micro)
}

fn connect(desired: &Desired, observed: &Observed, name: &Name, process: &Process, plan: &mut Plan) {
    if !observed.fabric_ready || process.stopping {
        return;
    }
    for &index in &process.sockets {
        let port = desired.numbers.port(&Owner::Nic(name.clone(), index));
        if let Some(port) = port.filter(|port| observed.waits(*port)) {
            plan.actions.push(Action::ConnectNic { vm: name.clone(), index, port });
        }
    }
}
