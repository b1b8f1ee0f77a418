//! Processes of VMs: which to start, stop and remove, and which vNICs to connect.

use taut_api::Name;
use taut_api::vm::{Power, VmDesired, VmKind};

use crate::facts::{Action, Desired, Observed, Owner, Process, Refusal, VmSeen};
use crate::network::vsock_devices;

/// The actions for every VM that is described or observed. VMs in `refused` are not started.
pub fn start_and_stop_vms(desired: &Desired, observed: &Observed, refused: &[Refusal]) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, seen) in &observed.vms {
        if !desired.vms.contains_key(name) {
            actions.push(Action::RemoveVm(name.clone()));
        } else if desired.vms[name].power == Power::Off
            && seen.process.as_ref().is_some_and(|process| !process.stopping)
        {
            actions.push(Action::StopVm(name.clone()));
        }
    }
    for (name, vm) in desired.vms_on() {
        let none = VmSeen::default();
        let seen = observed.vms.get(name).unwrap_or(&none);
        match &seen.process {
            Some(process) => actions.extend(connect_vnics(desired, observed, name, process)),
            None if may_start(vm, seen, observed)
                && vsock_devices::can_start(desired, observed, name, vm)
                && !refused.iter().any(|refusal| refusal.vm == *name) =>
            {
                actions.push(Action::StartVm(name.clone()));
            }
            None => {}
        }
    }
    actions
}

/// Returns whether the VM may be started now. A VM that failed waits for its user, because
/// starting it again would hide the reason and keep the host busy. QEMU also waits for the probe of
/// the host.
fn may_start(vm: &VmDesired, seen: &VmSeen, observed: &Observed) -> bool {
    seen.failure.is_none() && (observed.host.probed || vm.vm.kind == VmKind::Micro)
}

fn connect_vnics(desired: &Desired, observed: &Observed, name: &Name, process: &Process) -> Vec<Action> {
    if !observed.fabric.ready || process.stopping {
        return Vec::new();
    }
    let connect = |&index: &usize| {
        let port = desired.numbers.port(&Owner::Nic(name.clone(), index))?;
        let waits = observed.awaits_attachment(port);
        waits.then(|| Action::ConnectNic { vm: name.clone(), index, port })
    };
    process.sockets.iter().filter_map(connect).collect()
}
