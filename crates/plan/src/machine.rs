//! What a VM's process is told: its accelerator, what its idle vCPUs do (SPEC BP), the limits of its disk (VN-14).

use taut_api::latency::Decision;
use taut_api::machine::{AcceleratorChoice, DiskLimits};
use taut_api::shares::ResourceStatus;
use taut_api::vm::{Power, VmDesired, VmKind, VmSpec};
use taut_api::{Bytes, Name};

use crate::{Action, Desired, Observed, Plan, Process};

/// Adds what running VMs' monitors have to be told, and how long KVM is to poll.
pub fn rule(desired: &Desired, observed: &Observed, plan: &mut Plan) {
    for (name, vm) in desired.vms.iter().filter(|(_, vm)| vm.power == Power::On) {
        let Some(process) = observed.vms.get(name).and_then(|seen| seen.process.as_ref()) else { continue };
        if process.accelerator == "kvm" && !process.stopping && !observed.restored {
            plan.poll_ns = plan.poll_ns.max(vm.vm.halt.poll_ns());
        }
        if process.kind == VmKind::Qemu && !process.stopping && process.machine.disk_limits != limits(&vm.vm)
        {
            plan.actions.push(Action::LimitDisk(name.clone()));
        }
    }
}

/// The limits that a VM's disk is to have.
pub fn limits(spec: &VmSpec) -> DiskLimits {
    spec.disk.as_ref().map(|disk| disk.limits).unwrap_or_default()
}

/// What became of it; nothing for a VM that asks for nothing.
pub fn explain(observed: &Observed, name: &Name, vm: &VmDesired) -> Option<ResourceStatus> {
    let spec = &vm.vm;
    let process = observed.vms.get(name).and_then(|seen| seen.process.as_ref());
    let mut status = ResourceStatus::default();
    accelerator(spec, process, &mut status);
    if !spec.halt.is_default() {
        halt(observed, name, spec, process, &mut status);
    }
    disk(spec, process, &mut status);
    for device in &spec.passthrough {
        decide(
            &mut status,
            format!("{} is handed to it by vfio-pci while it runs", device.address),
            "LS-8: no vSwitch sees its frames, so no shaping, no counters, no live migration; interrupts come near its pCPUs",
            false,
        );
    }
    (status != ResourceStatus::default()).then_some(status)
}

fn decide(status: &mut ResourceStatus, decision: String, rule: &str, restart: bool) {
    status.decisions.push(Decision { decision, rule: rule.to_owned(), restart });
}

fn accelerator(spec: &VmSpec, process: Option<&Process>, status: &mut ResourceStatus) {
    let wanted = match spec.accelerator {
        AcceleratorChoice::Auto => return,
        AcceleratorChoice::Kvm => "kvm",
        AcceleratorChoice::Tcg => "tcg",
    };
    let rule = "accelerator: its own choice, whatever the probe of this host has found";
    match process.map(|process| process.accelerator.as_str()) {
        Some(other) if other != wanted => {
            decide(status, format!("it runs under {wanted}; it was started under {other}"), rule, true);
        }
        _ => decide(status, format!("it runs under {wanted}"), rule, false),
    }
}

fn halt(
    observed: &Observed,
    name: &Name,
    spec: &VmSpec,
    process: Option<&Process>,
    status: &mut ResourceStatus,
) {
    let halt = spec.halt;
    if let Some(process) = process
        && process.accelerator != "kvm"
    {
        status.missing.push(format!(
            "[halt] has no effect: the VM runs under {}, and only KVM lets a guest halt by itself, or polls for it",
            process.accelerator
        ));
        return;
    }
    let started = |as_wanted: fn(&Process) -> bool| process.is_none_or(as_wanted);
    let alone = observed.exclusive.contains_key(name);
    match halt.desched {
        Some(false) if alone => decide(
            status,
            "an idle vCPU keeps its pCPU: it halts in the guest (cpu-pm)".to_owned(),
            "halt_desched = false, and its pCPUs are its own; KVM settles it when the VM starts",
            !started(|process| process.machine.cpu_pm),
        ),
        Some(false) => status.missing.push(format!(
            "halt.desched = false is not in force: no pCPU is exclusively its own, and a vCPU that never gives it away would \
             take it from others; `taut vm set {name} --latency-sensitivity high --cpu-reservation full --memory-reservation full`"
        )),
        Some(true) => decide(
            status,
            "an idle vCPU gives its pCPU away".to_owned(),
            "halt_desched = true; KVM settles it when the VM starts",
            !started(|process| !process.machine.cpu_pm),
        ),
        None => {}
    }
    match (halt.spin, halt.poll_ns()) {
        (Some(true), Some(ns)) => {
            decide(
                status,
                format!("KVM polls for at least {ns} ns before it gives a halted vCPU's pCPU away"),
                "idleLoopSpinBeforeHalt: halt_poll_ns, one setting for the host; the longest of all running VMs counts",
                false,
            );
            let problems = observed.host_problems.iter().filter(|problem| problem.contains("halt_poll_ns"));
            status.missing.extend(problems.cloned());
            decide(
                status,
                "the guest may switch KVM's polling off while it polls by itself".to_owned(),
                "kvm-poll-control; KVM settles it when the VM starts",
                !started(|process| process.machine.poll_control),
            );
            if alone {
                decide(
                    status,
                    "a Linux guest polls by itself before it halts (haltpoll)".to_owned(),
                    "kvm-hint-dedicated: its pCPUs are its own; KVM settles it when the VM starts",
                    !started(|process| process.machine.hint_dedicated),
                );
            }
        }
        (Some(false), _) => decide(
            status,
            "the guest is not told to poll before it halts".to_owned(),
            "idleLoopSpinBeforeHalt = false; what the host polls by itself stays",
            !started(|process| !process.machine.hint_dedicated && !process.machine.poll_control),
        ),
        _ => {}
    }
}

fn disk(spec: &VmSpec, process: Option<&Process>, status: &mut ResourceStatus) {
    let wanted = limits(spec);
    let actual = process.map(|process| process.machine.disk_limits);
    if wanted.is_none() && actual.is_none_or(|limits| limits.is_none()) {
        return;
    }
    let in_force = actual.is_none_or(|actual| actual == wanted);
    let text = [
        wanted.bandwidth.map(|Bytes(bytes)| format!("{} a second", Bytes(bytes))),
        wanted.iops.map(|iops| format!("{iops} operations a second")),
    ];
    let text: Vec<_> = text.into_iter().flatten().collect();
    let decision = match text.as_slice() {
        [] => "its disk is not limited any more".to_owned(),
        limits => format!("its disk does at most {}", limits.join(" and ")),
    };
    decide(status, decision, "VN-14: QEMU's own throttling, changed while the VM runs", false);
    if !in_force {
        status.missing.push("the limits of its disk are not in force yet: QEMU has not answered".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use taut_api::machine::HaltSpec;
    use taut_api::vm::{Disk, VmSpec};

    use super::*;
    use crate::{MachineSeen, VmSeen};

    fn name() -> Name {
        "db1".parse().unwrap()
    }

    fn process(accelerator: &str, machine: MachineSeen) -> Observed {
        let process = Process {
            pid: 7,
            kind: VmKind::Qemu,
            accelerator: accelerator.to_owned(),
            stopping: false,
            sockets: BTreeSet::new(),
            vmci: false,
            locked: false,
            cpu_pm: machine.cpu_pm,
            machine,
        };
        let seen = VmSeen { process: Some(process), ..VmSeen::default() };
        Observed { vms: [(name(), seen)].into(), ..Observed::default() }
    }

    fn vm(spec: VmSpec) -> VmDesired {
        VmDesired { vm: spec, power: Power::On }
    }

    fn planned(observed: &Observed, spec: VmSpec) -> Plan {
        let desired = Desired { vms: [(name(), vm(spec))].into(), ..Desired::default() };
        let mut plan = Plan::default();
        rule(&desired, observed, &mut plan);
        plan
    }

    fn spinning() -> VmSpec {
        let halt = HaltSpec { desched: Some(false), spin: Some(true), min_spin_us: Some(50) };
        VmSpec { halt, ..VmSpec::default() }
    }

    #[test]
    fn a_disk_whose_limits_are_others_is_limited() {
        let limits = DiskLimits { bandwidth: Some(Bytes(1 << 20)), iops: Some(80) };
        let disk: Disk = serde_json::from_str(r#"{"path": "/d"}"#).unwrap();
        let spec = VmSpec { disk: Some(Disk { limits, ..disk }), ..VmSpec::default() };
        let told = |limits| {
            let observed = process("tcg", MachineSeen { disk_limits: limits, ..MachineSeen::default() });
            (
                planned(&observed, spec.clone()).actions,
                explain(&observed, &name(), &vm(spec.clone())).unwrap(),
            )
        };
        let (actions, status) = told(DiskLimits::default());
        assert_eq!(actions, [Action::LimitDisk(name())]);
        assert_eq!(status.missing.len(), 1, "{status:?}");
        let (actions, status) = told(limits);
        assert_eq!((actions, status.missing.len()), (vec![], 0));
        assert_eq!(
            status.decisions[0].decision,
            "its disk does at most 1MiB a second and 80 operations a second"
        );
    }

    #[test]
    fn kvm_polls_for_running_vms_that_spin() {
        let seen = |accelerator| process(accelerator, MachineSeen::default());
        assert_eq!(planned(&seen("kvm"), spinning()).poll_ns, Some(50_000));
        assert_eq!(planned(&seen("tcg"), spinning()).poll_ns, None);
        assert_eq!(planned(&seen("kvm"), VmSpec::default()).poll_ns, None);
        assert_eq!(planned(&Observed::default(), spinning()).poll_ns, None, "it does not run");
        let restored = Observed { restored: true, ..seen("kvm") };
        assert_eq!(planned(&restored, spinning()).poll_ns, None);
    }

    #[test]
    fn halting_is_explained_with_what_is_missing_and_what_needs_a_restart() {
        let said = |observed: &Observed| explain(observed, &name(), &vm(spinning())).unwrap();
        let emulated = said(&process("tcg", MachineSeen::default()));
        assert!(emulated.missing[0].contains("no effect: the VM runs under tcg"), "{emulated:?}");
        assert_eq!(emulated.decisions, []);

        let shared = said(&process("kvm", MachineSeen { poll_control: true, ..MachineSeen::default() }));
        assert!(shared.missing[0].contains("no pCPU is exclusively its own"), "{shared:?}");
        assert!(shared.decisions.iter().all(|decision| !decision.restart), "{shared:?}");

        let mut alone = process("kvm", MachineSeen::default());
        alone.exclusive.insert(name(), vec![1]);
        let status = said(&alone);
        assert_eq!(status.missing, Vec::<String>::new());
        let restarts: Vec<_> = status.decisions.iter().map(|decision| decision.restart).collect();
        assert_eq!(restarts, [true, false, true, true], "all but KVM's own polling: {status:?}");
        let all =
            MachineSeen { cpu_pm: true, hint_dedicated: true, poll_control: true, ..MachineSeen::default() };
        let mut started = process("kvm", all);
        started.exclusive.insert(name(), vec![1]);
        started.host_problems.push("/sys/module/kvm/parameters/halt_poll_ns cannot be changed: x".to_owned());
        let status = said(&started);
        assert!(status.decisions.iter().all(|decision| !decision.restart), "{status:?}");
        assert_eq!(status.missing.len(), 1, "what the host does not let be set: {status:?}");
    }

    #[test]
    fn another_accelerator_needs_a_restart() {
        let spec = VmSpec { accelerator: AcceleratorChoice::Kvm, ..VmSpec::default() };
        let restart = |accelerator| {
            let observed = process(accelerator, MachineSeen::default());
            explain(&observed, &name(), &vm(spec.clone())).unwrap().decisions[0].restart
        };
        assert!(restart("tcg") && !restart("kvm"));
        assert_eq!(explain(&Observed::default(), &name(), &vm(VmSpec::default())), None);
    }
}
