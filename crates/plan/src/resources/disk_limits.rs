//! Limits of a VM's disk, which QEMU's own throttling enforces (VN-14).

use taut_api::machine::DiskLimits;
use taut_api::vm::{VmKind, VmSpec};

use crate::facts::{Action, Desired, Explanation, Observed, Process, Row};

/// The limits that a VM's disk is to have.
pub fn wanted_limits(spec: &VmSpec) -> DiskLimits {
    spec.disk.as_ref().map(|disk| disk.limits).unwrap_or_default()
}

/// An action for each running QEMU whose disk has other limits than wanted.
pub fn limit_disks(desired: &Desired, observed: &Observed) -> Vec<Action> {
    let differs = |process: &Process, spec: &VmSpec| {
        process.kind == VmKind::Qemu
            && !process.stopping
            && process.machine.disk_limits != wanted_limits(spec)
    };
    let vms = desired.vms_on();
    let vms = vms.filter(|(name, vm)| observed.process(name).is_some_and(|process| differs(process, &vm.vm)));
    vms.map(|(name, _)| Action::LimitDisk(name.clone())).collect()
}

/// Explains the limits of a VM's disk.
pub(crate) fn explain_disk_limits(spec: &VmSpec, process: Option<&Process>) -> Explanation {
    let mut told = Explanation::default();
    let wanted = wanted_limits(spec);
    let actual = process.map(|process| process.machine.disk_limits);
    if wanted.is_none() && actual.is_none_or(|limits| limits.is_none()) {
        return told;
    }
    let text = [
        wanted.bandwidth.map(|bandwidth| format!("{bandwidth} a second")),
        wanted.iops.map(|iops| format!("{iops} operations a second")),
    ];
    let text: Vec<_> = text.into_iter().flatten().collect();
    let decision = match text.as_slice() {
        [] => "its disk is no longer limited".to_owned(),
        limits => format!("its disk does at most {}", limits.join(" and ")),
    };
    told.decide(decision, Row::SharesAndLimits.because("QEMU throttles the disk, also while the VM runs"));
    if actual.is_some_and(|actual| actual != wanted) {
        told.lack("the limits of its disk are not in force yet: QEMU has not confirmed them");
    }
    told
}

#[cfg(test)]
mod tests {
    use taut_api::vm::{Disk, Power, VmDesired};
    use taut_api::{Bytes, Name};

    use super::*;
    use crate::facts::{MachineSeen, VmSeen};

    #[test]
    fn a_disk_with_other_limits_than_wanted_is_limited() {
        let name: Name = "db1".parse().unwrap();
        let limits = DiskLimits { bandwidth: Some(Bytes(1 << 20)), iops: Some(80) };
        let disk: Disk = serde_json::from_str(r#"{"path": "/d"}"#).unwrap();
        let spec = VmSpec { disk: Some(Disk { limits, ..disk }), ..VmSpec::default() };
        let vm = VmDesired { vm: spec.clone(), power: Power::On };
        let desired = Desired { vms: [(name.clone(), vm)].into(), ..Desired::default() };
        let told = |limits| {
            let machine = MachineSeen { disk_limits: limits, ..MachineSeen::default() };
            let process = Process { machine, ..Process::default() };
            let seen = VmSeen { process: Some(process.clone()), ..VmSeen::default() };
            let observed = Observed { vms: [(name.clone(), seen)].into(), ..Observed::default() };
            (limit_disks(&desired, &observed), explain_disk_limits(&spec, Some(&process)))
        };
        let (actions, status) = told(DiskLimits::default());
        assert_eq!(actions, [Action::LimitDisk(name.clone())]);
        assert_eq!(status.missing.len(), 1, "{status:?}");
        let (actions, status) = told(limits);
        assert_eq!((actions, status.missing.len()), (vec![], 0));
        assert_eq!(
            status.decisions[0].decision,
            "its disk does at most 1MiB a second and 80 operations a second"
        );
    }
}
