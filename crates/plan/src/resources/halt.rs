//! Idle vCPUs: halting in the guest, and polling before they halt (BP, LS-6).

use taut_api::Name;
use taut_api::enforcement::HostReport;
use taut_api::machine::VmAccelerator;
use taut_api::vm::VmSpec;

use crate::facts::{Desired, Explanation, Observed, Process, Row};

/// Minimum time for which KVM polls before it deschedules a halted vCPU, in nanoseconds. There is
/// one setting for the host, so the longest of all running VMs counts.
pub fn poll_for_halted_vcpus(desired: &Desired, observed: &Observed) -> Option<u64> {
    let polls = |process: &Process| process.accelerator == VmAccelerator::Kvm && !process.stopping;
    let vms = desired.vms_on().filter(|_| !observed.restored);
    let vms = vms.filter(|(name, _)| observed.process(name).is_some_and(polls));
    vms.filter_map(|(_, vm)| vm.vm.halt.poll_ns()).max()
}

/// Explains where the idle vCPUs of a VM with exclusive pCPUs halt.
pub(crate) fn explain_halt_in_guest(process: Option<&Process>) -> Explanation {
    let mut told = Explanation::default();
    let rule = Row::FastWakeUp.because(
        "an idle vCPU halts without leaving the guest (cpu-pm of QEMU); QEMU keeps this setting until the VM \
         is started again, even when the VM is set back to normal",
    );
    match process {
        Some(process) if process.accelerator != VmAccelerator::Kvm => told.decide(
            format!("idle vCPUs halt in the host's scheduler: the VM runs under {}", process.accelerator),
            Row::FastWakeUp.because("only KVM lets an idle vCPU halt in the guest"),
        ),
        Some(process) if !process.machine.cpu_pm => {
            told.decide_from(true, "idle vCPUs halt in the guest from its next start on", rule);
        }
        _ => told.decide("idle vCPUs halt in the guest", rule),
    }
    told
}

/// Explains the `[halt]` section of a VM's file.
pub(crate) fn explain_halt(
    report: &HostReport,
    name: &Name,
    spec: &VmSpec,
    process: Option<&Process>,
) -> Explanation {
    let mut told = Explanation::default();
    if spec.halt.is_default() {
        return told;
    }
    if let Some(process) = process
        && process.accelerator != VmAccelerator::Kvm
    {
        told.lack(format!(
            "[halt] has no effect: the VM runs under {}, and only KVM can halt in the guest or poll",
            process.accelerator
        ));
        return told;
    }
    let owns_pcpus = report.vms.get(name).is_some_and(|vm| !vm.cpus.is_empty());
    explain_descheduling(&mut told, name, spec, process, owns_pcpus);
    explain_polling(&mut told, report, spec, process, owns_pcpus);
    told
}

/// Returns whether a setting differs from what the process was started with. A VM without a
/// process starts with the wanted setting.
fn needs_restart(process: Option<&Process>, as_wanted: fn(&Process) -> bool) -> bool {
    !process.is_none_or(as_wanted)
}

fn explain_descheduling(
    told: &mut Explanation,
    name: &Name,
    spec: &VmSpec,
    process: Option<&Process>,
    owns_pcpus: bool,
) {
    match spec.halt.desched {
        Some(false) if owns_pcpus => told.decide_from(
            needs_restart(process, |process| process.machine.cpu_pm),
            "an idle vCPU keeps its pCPU: it halts in the guest (cpu-pm)",
            "halt.desched = false, and the VM owns its pCPUs; fixed when the VM starts",
        ),
        Some(false) => told.lack(format!(
            "halt.desched = false is not in force: the VM owns no pCPU, and a vCPU that never leaves its \
             pCPU would take it from others; hint: `taut vm set {name} --latency-sensitivity high \
             --cpu-reservation full --memory-reservation full`"
        )),
        Some(true) => told.decide_from(
            needs_restart(process, |process| !process.machine.cpu_pm),
            "an idle vCPU leaves its pCPU to others",
            "halt.desched = true; fixed when the VM starts",
        ),
        None => {}
    }
}

fn explain_polling(
    told: &mut Explanation,
    report: &HostReport,
    spec: &VmSpec,
    process: Option<&Process>,
    owns_pcpus: bool,
) {
    match (spec.halt.spin, spec.halt.poll_ns()) {
        (Some(true), Some(ns)) => {
            told.decide(
                format!("KVM polls for at least {ns} ns before it deschedules a halted vCPU"),
                "idleLoopSpinBeforeHalt: halt_poll_ns is one setting for the host, and the longest time of \
                 all running VMs counts",
            );
            let problems = report.cpu_problems.iter().filter(|problem| problem.contains("halt_poll_ns"));
            told.missing.extend(problems.cloned());
            told.decide_from(
                needs_restart(process, |process| process.machine.poll_control),
                "the guest may switch KVM's polling off while it polls by itself",
                "kvm-poll-control; fixed when the VM starts",
            );
            if owns_pcpus {
                told.decide_from(
                    needs_restart(process, |process| process.machine.hint_dedicated),
                    "a Linux guest polls by itself before it halts (haltpoll)",
                    "kvm-hint-dedicated: the VM owns its pCPUs; fixed when the VM starts",
                );
            }
        }
        (Some(false), _) => told.decide_from(
            needs_restart(process, |process| {
                !process.machine.hint_dedicated && !process.machine.poll_control
            }),
            "the guest is not told to poll before it halts",
            "idleLoopSpinBeforeHalt = false; the host's own polling stays as it is",
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use taut_api::enforcement::VmReport;
    use taut_api::machine::HaltSpec;
    use taut_api::vm::{Power, VmDesired};

    use super::*;
    use crate::facts::{MachineSeen, VmSeen};

    fn name() -> Name {
        "db1".parse().unwrap()
    }

    fn process(accelerator: VmAccelerator, machine: MachineSeen) -> Process {
        Process { accelerator, machine, ..Process::default() }
    }

    fn polled(accelerator: Option<VmAccelerator>, spec: VmSpec, restored: bool) -> Option<u64> {
        let process = accelerator.map(|accelerator| process(accelerator, MachineSeen::default()));
        let seen = VmSeen { process, ..VmSeen::default() };
        let observed = Observed { vms: [(name(), seen)].into(), restored, ..Observed::default() };
        let vm = VmDesired { vm: spec, power: Power::On };
        let desired = Desired { vms: [(name(), vm)].into(), ..Desired::default() };
        poll_for_halted_vcpus(&desired, &observed)
    }

    fn spinning() -> VmSpec {
        let halt = HaltSpec { desched: Some(false), spin: Some(true), min_spin_us: Some(50) };
        VmSpec { halt, ..VmSpec::default() }
    }

    #[test]
    fn kvm_polls_for_running_vms_that_spin() {
        assert_eq!(polled(Some(VmAccelerator::Kvm), spinning(), false), Some(50_000));
        assert_eq!(polled(Some(VmAccelerator::Tcg), spinning(), false), None);
        assert_eq!(polled(Some(VmAccelerator::Kvm), VmSpec::default(), false), None);
        assert_eq!(polled(None, spinning(), false), None, "it does not run");
        assert_eq!(polled(Some(VmAccelerator::Kvm), spinning(), true), None, "the user restored the host");
    }

    #[test]
    fn halting_is_explained_with_what_is_missing_and_what_needs_a_restart() {
        let told = |process: &Process, report: &HostReport| {
            explain_halt(report, &name(), &spinning(), Some(process))
        };
        let nothing = HostReport::default();
        let emulated = told(&process(VmAccelerator::Tcg, MachineSeen::default()), &nothing);
        assert!(emulated.missing[0].contains("no effect: the VM runs under tcg"), "{emulated:?}");
        assert_eq!(emulated.decisions, []);

        let machine = MachineSeen { poll_control: true, ..MachineSeen::default() };
        let shared = told(&process(VmAccelerator::Kvm, machine), &nothing);
        assert!(shared.missing[0].contains("the VM owns no pCPU"), "{shared:?}");
        assert!(shared.decisions.iter().all(|decision| !decision.restart), "{shared:?}");

        let owner = VmReport { cpus: vec![1], ..VmReport::default() };
        let mut report = HostReport { vms: [(name(), owner)].into(), ..HostReport::default() };
        let status = told(&process(VmAccelerator::Kvm, MachineSeen::default()), &report);
        assert_eq!(status.missing, Vec::<String>::new());
        let restarts: Vec<_> = status.decisions.iter().map(|decision| decision.restart).collect();
        assert_eq!(restarts, [true, false, true, true], "all but KVM's own polling: {status:?}");
        let all =
            MachineSeen { cpu_pm: true, hint_dedicated: true, poll_control: true, ..MachineSeen::default() };
        report.cpu_problems.push("/sys/module/kvm/parameters/halt_poll_ns cannot be changed: x".to_owned());
        let status = told(&process(VmAccelerator::Kvm, all), &report);
        assert!(status.decisions.iter().all(|decision| !decision.restart), "{status:?}");
        assert_eq!(status.missing.len(), 1, "what the host does not let be set: {status:?}");
    }
}
