use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use taut_api::host::Cpu;
use taut_api::resources::{CpuReservation, MemoryReservation};

use super::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn cpu(id: u32, core: u32) -> Cpu {
    Cpu { id, package: 0, core, node: 0, llc: 0 }
}

fn host(cpus: u32) -> Observed {
    Observed {
        memory_total: Bytes::mib(4096),
        cpus: (0..cpus).map(|id| cpu(id, id)).collect(),
        cpu_mhz: 2000,
        ..Observed::default()
    }
}

fn vm(json: &serde_json::Value) -> VmDesired {
    serde_json::from_value(json.clone()).unwrap()
}

/// A VM that is on, latency-sensitive and fully reserved.
fn high(vcpus: u32, mib: u64) -> VmDesired {
    vm(&serde_json::json!({
        "power": "on", "vcpus": vcpus, "memory": format!("{mib}MiB"), "memory_reservation": "full",
        "cpu": { "reservation": "full" }, "latency_sensitivity": "high",
    }))
}

fn refused(desired: &Desired, observed: &Observed, vm: &VmDesired, words: &[&str]) {
    let error = admit(desired, observed, &name("new"), vm).unwrap_err();
    for word in words {
        assert!(error.message.contains(word), "`{word}` is not in: {error}");
    }
    assert!(!error.hint.is_empty());
}

#[test]
fn each_refusal_has_its_numbers() {
    let (mut desired, observed) = (Desired::default(), host(2));
    let mut half = high(1, 512);
    half.vm.memory_reservation = MemoryReservation::Size(Bytes::mib(128));
    refused(&desired, &observed, &half, &["`new`", "\"high\"", "128MiB of 512MiB", "384MiB are missing"]);
    half.power = Power::Off;
    refused(&desired, &observed, &half, &["384MiB are missing"]);

    // 3840 MiB can be reserved.
    refused(&desired, &observed, &high(1, 3842), &["3842 MiB", "only 3840 MiB", "2 MiB are missing"]);
    refused(&desired, &observed, &high(2, 512), &["2 pCPUs for its 2 vCPUs", "has 2", "1 can be reserved"]);
    assert_eq!(admit(&desired, &observed, &name("new"), &high(1, 3840)), Ok(()));

    desired.vms.insert(name("old"), high(1, 2048));
    refused(
        &desired,
        &observed,
        &high(1, 2048),
        &["2048 MiB", "1792 MiB are unreserved", "256 MiB are missing"],
    );
    refused(
        &desired,
        &observed,
        &high(1, 512),
        &["over-committed", "of 1 that can be reserved", "reserved 1"],
    );
    // Off, it needs nothing yet.
    assert_eq!(
        admit(&desired, &observed, &name("new"), &VmDesired { power: Power::Off, ..high(1, 512) }),
        Ok(())
    );

    // Somebody without exclusive pCPUs was promised what would be left.
    let mut desired = Desired::default();
    let mut normal = high(2, 512);
    normal.vm.latency_sensitivity = LatencySensitivity::Normal;
    desired.vms.insert(name("old"), normal.clone());
    refused(&desired, &host(4), &high(2, 512), &["over-committed", "reserved 2"]);
    assert_eq!(admit(&desired, &host(4), &name("new"), &high(1, 512)), Ok(()));
}

#[test]
fn smt_siblings_that_are_taken_are_a_reason() {
    // Two cores of two threads: the first is the host's.
    let mut observed = host(4);
    observed.cpus = vec![cpu(0, 0), cpu(1, 1), cpu(2, 0), cpu(3, 1)];
    let mut desired = Desired::default();
    desired.vms.insert(name("old"), high(1, 512));
    refused(
        &desired,
        &observed,
        &high(1, 512),
        &[
            "1 whole cores",
            "SMT sibling",
            "0 are free",
            "2 cores, 1 stay for the host",
            "1 belong to VM `old`",
        ],
    );
    desired.workers.cpus = vec![3];
    desired.vms.clear();
    refused(&desired, &observed, &high(1, 512), &["2 stay for the host", "--fabric-cpus"]);
    // Three cores: two are the VM's, siblings included, and two pCPUs are left.
    desired.workers.cpus.clear();
    desired.vms.insert(name("old"), high(2, 512));
    observed.cpus.extend([cpu(4, 2), cpu(5, 2)]);
    let mut normal = high(3, 512);
    normal.vm.latency_sensitivity = LatencySensitivity::Normal;
    normal.vm.cpu.reservation = CpuReservation::Percent(66);
    assert_eq!(admit(&desired, &observed, &name("new"), &normal), Ok(()));
    normal.vm.cpu.reservation = CpuReservation::Full;
    refused(
        &desired,
        &observed,
        &normal,
        &["over-committed", "4 of its 6 pCPUs", "3 would be promised of the 2"],
    );
}

#[test]
fn without_cpu_reserved_there_are_no_exclusive_pcpus_and_it_is_said() {
    let (mut desired, observed) = (Desired::default(), host(2));
    let mut half = high(1, 512);
    half.vm.cpu.reservation = CpuReservation::Mhz(1000);
    assert_eq!(admit(&desired, &observed, &name("new"), &half), Ok(()));
    desired.vms.insert(name("new"), half.clone());
    assert!(rule(&desired, &observed).granted.is_empty());
    let status = explain(&observed, &Decided::new(&desired, &observed), &name("new"), &half).unwrap();
    assert!(status.missing[0].contains("0.5 of 1 pCPUs are reserved"), "{status:?}");
    half.vm.cpu.reservation = CpuReservation::Mhz(2000);
    desired.vms.insert(name("new"), half.clone());
    let status = explain(&observed, &Decided::new(&desired, &observed), &name("new"), &half).unwrap();
    assert_eq!(status.cpus, [1]);
    assert_eq!(status.decisions[0].decision, "vCPU 0 owns pCPU 1");
    let interrupt = |cpu| ([cpu].into(), format!("interrupt {cpu}4 (nic)"), "Input/output error".to_owned());
    let observed = Observed { fixed_interrupts: vec![interrupt(1), interrupt(0)], ..observed };
    let status = explain(&observed, &Decided::new(&desired, &observed), &name("new"), &half).unwrap();
    let told = status.decisions.iter().filter(|decision| decision.decision.starts_with("interrupt"));
    let told: Vec<_> = told.map(|it| (&*it.decision, &*it.rule)).collect();
    let rule = "LS-3: what can be moved is moved; this cannot: Input/output error";
    assert_eq!(told, [("interrupt 14 (nic) may still come to pCPUs [1]", rule)]);
}

#[test]
fn what_needs_a_restart_is_named() {
    let (mut desired, mut observed) = (Desired::default(), host(2));
    desired.vms.insert(name("new"), high(1, 512));
    let mut process = Process {
        pid: 1,
        kind: VmKind::Qemu,
        accelerator: "kvm".into(),
        stopping: false,
        sockets: [].into(),
        vmci: false,
        locked: false,
        cpu_pm: false,
        machine: crate::MachineSeen::default(),
    };
    let mut seen = |process: &Process| {
        observed.vms.entry(name("new")).or_default().process = Some(process.clone());
        observed.exclusive.insert(name("new"), vec![1]);
        observed.in_force.insert(name("new"));
        explain(&observed, &Decided::new(&desired, &observed), &name("new"), &desired.vms[&name("new")])
            .unwrap()
    };
    let status = seen(&process);
    let later: Vec<_> = status.decisions.iter().filter(|decision| decision.restart).collect();
    assert_eq!((status.state, later.len()), (LatencyState::Partly, 2), "{status:?}");
    process.locked = true;
    process.cpu_pm = true;
    let status = seen(&process);
    assert!(status.decisions.iter().all(|decision| !decision.restart), "{status:?}");
}

#[test]
fn workers_that_go_first_do_not_keep_the_last_pcpu_busy() {
    use taut_api::fabric::config::WorkerMode;
    let mut desired = Desired::default();
    let adaptive = WorkerMode::Adaptive { poll_us: 50 };
    desired.workers.mode = adaptive;
    let mode = |desired: &Desired, cpus| crate::plan(desired, &host(cpus)).fabric.workers.mode;
    assert_eq!(mode(&desired, 2), adaptive, "nobody owns a pCPU");
    desired.vms.insert(name("db1"), high(1, 512));
    assert_eq!(mode(&desired, 2), WorkerMode::Interrupt);
    assert_eq!(mode(&desired, 3), adaptive, "there is another one");
    desired.workers.mode = WorkerMode::Polling;
    assert_eq!(mode(&desired, 2), WorkerMode::Polling, "somebody asked for that");
}

fn any_vm() -> impl Strategy<Value = VmDesired> {
    let reservation = prop_oneof![
        Just(CpuReservation::None),
        Just(CpuReservation::Full),
        (1..=100u8).prop_map(CpuReservation::Percent),
        (1..20_000u32).prop_map(CpuReservation::Mhz),
    ];
    let level = prop_oneof![
        Just(LatencySensitivity::Normal),
        Just(LatencySensitivity::High),
        Just(LatencySensitivity::HighHt)
    ];
    (1..6u32, 1..2000u64, reservation, any::<bool>(), level).prop_map(|(vcpus, mib, cpu, memory, level)| {
        let mut vm = high(vcpus, mib * 2);
        vm.vm.cpu.reservation = cpu;
        vm.vm.memory_reservation = if memory { MemoryReservation::Full } else { MemoryReservation::None };
        vm.vm.latency_sensitivity = level;
        vm
    })
}

/// As many cases as for placements.
fn config() -> ProptestConfig {
    let cases = std::env::var("TAUT_PLAN_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(500), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reservations_never_exceed_capacity(
        cpus in 1..9u32,
        smt in any::<bool>(),
        vms in vec((0..8u8, any_vm()), 0..12),
        off in btree_map(0..12usize, 0..8u8, 0..4),
    ) {
        let mut observed = host(cpus);
        if smt {
            observed.cpus.iter_mut().for_each(|cpu| cpu.core /= 2);
        }
        let mut desired = Desired::default();
        for (step, (number, vm)) in vms.into_iter().enumerate() {
            let vm_name = name(&format!("vm{number}"));
            if admit(&desired, &observed, &vm_name, &vm).is_ok() {
                desired.vms.insert(vm_name, vm);
            }
            if let Some(gone) = off.get(&step) {
                desired.vms.remove(&name(&format!("vm{gone}")));
            }
            let placement = rule(&desired, &observed);
            prop_assert!(placement.short.is_empty(), "admitted, and short: {:?}", placement.short);
            observed.exclusive =
                placement.granted.iter().map(|(name, grant)| (name.clone(), grant.cpus.clone())).collect();
            let memory: u64 = desired.vms.values().map(|vm| reserved(&vm.vm)).sum();
            prop_assert!(memory <= reservable_memory(observed.memory_total).0);
            let promised: u64 = desired.vms.values().map(|vm| thousandths(&vm.vm, &observed)).sum();
            prop_assert!(promised <= u64::from(cpus - 1) * 1000);
            let left = (observed.cpus.len() - placement.exclusive().len()) as u64 * 1000;
            prop_assert!(problem(&desired, &observed).promised <= left);
        }
    }
}
