//! Settings of a running QEMU that change when it is started again.

use taut_api::vm::{VmDesired, VmSpec};
use taut_api::word::counted;
use taut_api::{Bytes, Mtu, Name};

use crate::facts::reservation::{memory_is_reserved, wants_exclusive_pcpus};
use crate::facts::{Desired, Explanation, HostSeen, MachineSize, Process, Row};
use crate::network::mtu::told_mtus;

/// Explains vCPUs and memory that the running process does not have yet.
pub(crate) fn explain_size(spec: &VmSpec, process: Option<&Process>) -> Explanation {
    let mut told = Explanation::default();
    let Some(MachineSize { vcpus, memory, .. }) = process.and_then(|process| process.machine.size) else {
        return told;
    };
    let rule = "vCPUs and memory are part of the machine that a VM starts with";
    if vcpus != spec.vcpus {
        let (now, then) = (counted(vcpus, "vCPU"), counted(spec.vcpus, "vCPU"));
        told.decide_from(true, format!("it has {then} from its next start on; it runs with {now}"), rule);
    }
    if memory != spec.memory {
        let (now, then): (Bytes, Bytes) = (memory, spec.memory);
        told.decide_from(
            true,
            format!("it has {then} of memory from its next start on; it runs with {now}"),
            rule,
        );
    }
    told
}

/// Explains MTUs of vSwitches that the guest of the running process was not told.
pub(crate) fn explain_mtus(
    desired: &Desired,
    name: &Name,
    spec: &VmSpec,
    process: Option<&Process>,
) -> Explanation {
    let mut told = Explanation::default();
    let Some(process) = process else { return told };
    let at_start = &process.machine.mtus;
    for (index, wanted) in told_mtus(desired, name, spec) {
        let now = match at_start.get(&index) {
            Some(now) => *now,
            // An earlier version told none: the guest began with the default.
            None if at_start.is_empty() => Mtu::default(),
            None => continue,
        };
        if wanted != now {
            told.decide_from(
                true,
                format!("its nic{index} has an MTU of {wanted} from its next start on; it runs with {now}"),
                Row::Mtu.because("that of its vSwitch, which a guest is told when it starts"),
            );
        }
    }
    told
}

/// Explains what a process keeps of the latency sensitivity and reservation that it was started
/// with, after they were taken back. `explain_halt` explains what `[halt]` asks for.
pub(crate) fn explain_leftovers(host: &HostSeen, vm: &VmDesired, process: Option<&Process>) -> Explanation {
    let mut told = Explanation::default();
    let Some(process) = process else { return told };
    let (spec, machine) = (&vm.vm, &process.machine);
    let owns_pcpus = wants_exclusive_pcpus(vm, host);
    if machine.cpu_pm && !owns_pcpus && spec.halt.desched != Some(true) {
        told.decide_from(
            true,
            "its idle vCPUs leave their pCPUs to others from its next start on; until then they halt in the \
             guest, and the host sees their pCPUs as busy",
            Row::FastWakeUp.because("QEMU keeps cpu-pm, with which it was started for exclusive pCPUs"),
        );
    }
    if machine.hint_dedicated && !owns_pcpus && spec.halt.spin != Some(false) {
        told.decide_from(
            true,
            "the guest is told from its next start on that its vCPUs share pCPUs",
            Row::ExclusivePcpus
                .because("QEMU keeps kvm-hint-dedicated, with which it was started for exclusive pCPUs"),
        );
    }
    if machine.poll_control && spec.halt.spin.is_none() {
        told.decide_from(
            true,
            "the guest may no longer switch KVM's polling off from its next start on",
            "halt.spin is the default again; kvm-poll-control is fixed when the VM starts",
        );
    }
    if process.locked && !memory_is_reserved(spec) {
        told.decide_from(
            true,
            "its memory is no longer allocated and locked from its next start on",
            Row::LocalMemory.because("not all of it is reserved any more; QEMU locks memory when it starts"),
        );
    }
    told
}

#[cfg(test)]
mod tests {
    use taut_api::vm::Power;

    use super::*;
    use crate::facts::MachineSeen;

    fn restarts(told: &Explanation) -> Vec<&str> {
        assert!(told.decisions.iter().all(|decision| decision.restart), "{told:?}");
        told.decisions.iter().map(|decision| decision.decision.as_str()).collect()
    }

    #[test]
    fn another_size_takes_effect_at_the_next_start() {
        let spec = VmSpec { vcpus: 4, memory: Bytes::mib(512), ..VmSpec::default() };
        let runs_with = |vcpus, memory| {
            let size = Some(MachineSize { vcpus, memory, ..MachineSize::default() });
            Process { machine: MachineSeen { size, ..MachineSeen::default() }, ..Process::default() }
        };
        let smaller = explain_size(&spec, Some(&runs_with(1, Bytes::mib(256))));
        assert_eq!(
            restarts(&smaller),
            [
                "it has 4 vCPUs from its next start on; it runs with 1 vCPU",
                "it has 512MiB of memory from its next start on; it runs with 256MiB"
            ]
        );
        let same = runs_with(4, Bytes::mib(512));
        for process in [None, Some(&same), Some(&Process::default())] {
            assert_eq!(explain_size(&spec, process), Explanation::default());
        }
    }

    #[test]
    fn a_guest_is_told_another_mtu_at_its_next_start() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let mut desired = Desired::default();
        for (group, mtu) in [("web", 9000), ("db", 1500)] {
            let vswitch = serde_json::json!({ "mtu": mtu });
            desired.vswitches.insert(name(group), serde_json::from_value(vswitch).unwrap());
            let spec = serde_json::json!({ "vswitch": group });
            desired.portgroups.insert(name(group), serde_json::from_value(spec).unwrap());
        }
        let nics =
            serde_json::json!({ "nic": [{ "portgroup": "web" }, { "portgroup": "db" }], "power": "on" });
        desired.vms.insert(name("db1"), serde_json::from_value(nics).unwrap());
        let mtus = [(0, Mtu::default()), (1, Mtu::default())].into();
        let process =
            Process { machine: MachineSeen { mtus, ..MachineSeen::default() }, ..Process::default() };
        let spec = &desired.vms[&name("db1")].vm;
        let told = explain_mtus(&desired, &name("db1"), spec, Some(&process));
        assert_eq!(
            restarts(&told),
            ["its nic0 has an MTU of 9000 from its next start on; it runs with 1500"]
        );
        assert_eq!(
            told.decisions[0].rule,
            "VN-17 MTU: that of its vSwitch, which a guest is told when it starts"
        );
        let earlier = explain_mtus(&desired, &name("db1"), spec, Some(&Process::default()));
        assert_eq!(restarts(&earlier), restarts(&told), "an earlier version told it none");
        assert_eq!(explain_mtus(&desired, &name("db1"), spec, None), Explanation::default());
    }

    #[test]
    fn a_vm_that_is_normal_again_keeps_what_it_was_started_with_until_it_is_started_again() {
        let machine =
            MachineSeen { cpu_pm: true, hint_dedicated: true, poll_control: true, ..MachineSeen::default() };
        let process = Process { machine, locked: true, ..Process::default() };
        let vm = |json: &str| VmDesired { vm: serde_json::from_str(json).unwrap(), power: Power::On };
        let host = HostSeen::default();
        let normal = explain_leftovers(&host, &vm("{}"), Some(&process));
        let told = restarts(&normal);
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].contains("idle vCPUs") && told[3].contains("locked"), "{told:?}");

        let high = r#"{"latency_sensitivity": "high", "memory_reservation": "full",
            "cpu": {"reservation": "full"}, "halt": {"spin": true}}"#;
        assert_eq!(explain_leftovers(&host, &vm(high), Some(&process)), Explanation::default());
        assert_eq!(explain_leftovers(&host, &vm("{}"), Some(&Process::default())), Explanation::default());
        assert_eq!(explain_leftovers(&host, &vm("{}"), None), Explanation::default());
    }
}
