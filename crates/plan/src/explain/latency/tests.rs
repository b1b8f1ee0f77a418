use taut_api::Bytes;
use taut_api::enforcement::{FixedInterrupt, VmReport};
use taut_api::host::Cpu;
use taut_api::machine::VmAccelerator;
use taut_api::resources::CpuReservation;

use super::*;
use crate::admission::reservations::admit_reservations;
use crate::facts::{Desired, HostSeen, MachineSeen, Process};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn host(cpus: u32) -> Observed {
    let cpu = |id| Cpu { id, package: 0, core: id, node: 0, llc: 0 };
    let host = HostSeen {
        memory_total: Bytes::mib(4096),
        cpus: (0..cpus).map(cpu).collect(),
        cpu_mhz: 2000,
        ..HostSeen::default()
    };
    Observed { host, ..Observed::default() }
}

/// A VM that is on, latency-sensitive and fully reserved.
fn high(vcpus: u32, mib: u64) -> VmDesired {
    serde_json::from_value(serde_json::json!({
        "power": "on", "vcpus": vcpus, "memory": format!("{mib}MiB"), "memory_reservation": "full",
        "cpu": { "reservation": "full" }, "latency_sensitivity": "high",
    }))
    .unwrap()
}

fn explained(desired: &Desired, observed: &Observed, report: &HostReport) -> LatencyStatus {
    let decided = Decided::new(desired, observed, report);
    explain_latency(observed, report, &decided, &name("new"), &desired.vms[&name("new")]).unwrap()
}

#[test]
fn a_vm_without_a_full_cpu_reservation_is_told_why_it_owns_no_pcpus() {
    let (mut desired, observed, nothing) = (Desired::default(), host(2), HostReport::default());
    let mut half = high(1, 512);
    half.vm.cpu.reservation = CpuReservation::Mhz(1000);
    assert_eq!(admit_reservations(&desired, &observed, &nothing, &name("new"), &half), Ok(()));
    desired.vms.insert(name("new"), half.clone());
    assert!(Decided::new(&desired, &observed, &nothing).placement.granted.is_empty());
    let status = explained(&desired, &observed, &nothing);
    assert!(status.missing[0].contains("it reserves 0.5 pCPUs for its 1 vCPU,"), "{status:?}");
    half.vm.cpu.reservation = CpuReservation::Mhz(2000);
    desired.vms.insert(name("new"), half);
    let status = explained(&desired, &observed, &nothing);
    assert_eq!(status.cpus, [1]);
    assert_eq!(status.decisions[0].decision, "vCPU 0 owns pCPU 1");
}

#[test]
fn an_interrupt_that_cannot_be_moved_is_told_to_the_owner_of_its_pcpu() {
    let desired = Desired { vms: [(name("new"), high(1, 512))].into(), ..Desired::default() };
    let interrupt = |cpu| FixedInterrupt {
        number: cpu * 10 + 4,
        drivers: "nic".to_owned(),
        cpus: [cpu].into(),
        why: "Input/output error".to_owned(),
    };
    let report = HostReport { fixed_interrupts: vec![interrupt(1), interrupt(0)], ..HostReport::default() };
    let status = explained(&desired, &host(2), &report);
    let told = status.decisions.iter().filter(|decision| decision.decision.starts_with("interrupt"));
    let told: Vec<_> = told.map(|it| (&*it.decision, &*it.rule)).collect();
    let rule = "LS-3 exclusive pCPUs: this interrupt cannot be moved: Input/output error";
    assert_eq!(told, [("interrupt 14 (nic) may still arrive at pCPU 1", rule)]);
}

#[test]
fn decisions_that_need_a_restart_are_named() {
    let mut observed = host(2);
    let desired = Desired { vms: [(name("new"), high(1, 512))].into(), ..Desired::default() };
    let owner = VmReport { cpus: vec![1], bound: true, exclusive: true, ..VmReport::default() };
    let mut report = HostReport { vms: [(name("new"), owner)].into(), ..HostReport::default() };
    let mut seen = |report: &HostReport, locked, cpu_pm| {
        let machine = MachineSeen { cpu_pm, ..MachineSeen::default() };
        let process = Process { accelerator: VmAccelerator::Kvm, locked, machine, ..Process::default() };
        observed.vms.entry(name("new")).or_default().process = Some(process);
        explained(&desired, &observed, report)
    };
    let status = seen(&report, false, false);
    let later: Vec<_> = status.decisions.iter().filter(|decision| decision.restart).collect();
    assert_eq!((status.state, later.len()), (LatencyState::Partly, 2), "{status:?}");
    let status = seen(&report, true, true);
    assert!(status.decisions.iter().all(|decision| !decision.restart), "{status:?}");
    assert_eq!(status.state, LatencyState::Granted, "{status:?}");
    // Other tasks may run on its pCPU.
    report.vms.get_mut(&name("new")).unwrap().exclusive = false;
    assert_eq!(seen(&report, true, true).state, LatencyState::Partly);
}
