use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use taut_api::enforcement::VmReport;
use taut_api::host::Cpu;
use taut_api::resources::{CpuReservation, MemoryReservation};

use super::*;
use crate::facts::{MachineSeen, Process, VmSeen};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn cpu(id: u32, core: u32) -> Cpu {
    Cpu { id, package: 0, core, node: 0, llc: 0 }
}

fn host(cpus: u32) -> Observed {
    let host = HostSeen {
        memory_total: Bytes::mib(4096),
        cpus: (0..cpus).map(|id| cpu(id, id)).collect(),
        cpu_mhz: 2000,
        ..HostSeen::default()
    };
    Observed { host, ..Observed::default() }
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

fn admit(desired: &Desired, observed: &Observed, name: &Name, vm: &VmDesired) -> Result<(), ApiError> {
    admit_reservations(desired, observed, &HostReport::default(), name, vm)
}

fn refused(desired: &Desired, observed: &Observed, vm: &VmDesired, words: &[&str]) {
    let error = admit(desired, observed, &name("new"), vm).unwrap_err();
    for word in words {
        assert!(error.message.contains(word), "`{word}` is not in: {error}");
    }
    assert!(!error.hint.is_empty());
}

#[test]
fn queue_pairs_are_promised_with_a_full_reservation_and_fit_into_the_host() {
    let (mut desired, observed) = (Desired::default(), host(2));
    let with = |memory: u64, reservation: &str, queue_pairs: &str| {
        vm(&serde_json::json!({
            "power": "on", "memory": format!("{memory}MiB"), "memory_reservation": reservation,
            "vmci": { "queue_pairs": queue_pairs },
        }))
    };
    // 3840 MiB can be reserved, and 2 MiB precede the queue pairs.
    admit(&desired, &observed, &name("new"), &with(3840 - 18, "full", "16MiB")).unwrap();
    refused(
        &desired,
        &observed,
        &with(3840 - 16, "full", "16MiB"),
        &["reserves 3842 MiB of memory, 18 MiB of these for queue pairs,", "2 MiB are missing"],
    );
    admit(&desired, &observed, &name("new"), &with(3840 - 16, "1GiB", "16MiB")).unwrap();
    desired.vms.insert(name("other"), with(2048, "full", "1GiB"));
    refused(
        &desired,
        &observed,
        &with(1024, "full", "0"),
        &["have reserved 3074 MiB", "258 MiB are missing"],
    );

    desired.vms.clear();
    admit(&desired, &observed, &name("new"), &with(4096 - 18, "none", "16MiB")).unwrap();
    let beyond = with(4096 - 16, "none", "16MiB");
    refused(&desired, &observed, &beyond, &["memory of 4080MiB, and 18MiB for queue pairs, is more than"]);

    // What a VM runs with is promised until it is started again.
    let mut running = observed.clone();
    let size = Some(MachineSize { vcpus: 1, memory: Bytes::mib(2048), queue_pairs: Bytes::mib(1024) });
    let machine = MachineSeen { size, ..MachineSeen::default() };
    let process = Process { machine, ..Process::default() };
    running.vms.insert(name("other"), VmSeen { process: Some(process), ..VmSeen::default() });
    desired.vms.insert(name("other"), with(2048, "full", "0"));
    refused(&desired, &running, &with(1024, "full", "0"), &["have reserved 3074 MiB"]);
    // So is the memory of a device that was removed meanwhile.
    let mut removed = with(2048, "full", "0");
    removed.vm.vmci = None;
    desired.vms.insert(name("other"), removed);
    refused(&desired, &running, &with(1024, "full", "0"), &["have reserved 3074 MiB"]);
    let promised = desired.as_running(&running).vms[&name("other")].vm.clone();
    assert_eq!((promised.vmci, promised.leftover_queue_pairs), (None, Bytes::mib(1024)));
    assert!(desired.sockets().next().is_none(), "the device itself is gone");
}

#[test]
fn each_refusal_states_its_numbers() {
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
    // A VM that is off needs nothing yet.
    assert_eq!(
        admit(&desired, &observed, &name("new"), &VmDesired { power: Power::Off, ..high(1, 512) }),
        Ok(())
    );

    // The pCPUs that would be left are reserved for a VM without exclusive pCPUs.
    let mut desired = Desired::default();
    let mut normal = high(2, 512);
    normal.vm.latency_sensitivity = LatencySensitivity::Normal;
    desired.vms.insert(name("old"), normal.clone());
    refused(&desired, &host(4), &high(2, 512), &["over-committed", "reserved 2"]);
    assert_eq!(admit(&desired, &host(4), &name("new"), &high(1, 512)), Ok(()));
}

#[test]
fn owned_smt_siblings_are_a_reason_for_refusal() {
    // Two cores of two threads. The first core stays with the host.
    let mut observed = host(4);
    observed.host.cpus = vec![cpu(0, 0), cpu(1, 1), cpu(2, 0), cpu(3, 1)];
    let mut desired = Desired::default();
    desired.vms.insert(name("old"), high(1, 512));
    refused(
        &desired,
        &observed,
        &high(1, 512),
        &[
            "1 whole core (an SMT sibling is never shared with others) for its 1 vCPU,",
            "it can have 0 of the host's 2 cores",
            "keep 1, VM `old` has 1",
        ],
    );
    desired.workers.cpus = vec![3];
    desired.vms.clear();
    refused(&desired, &observed, &high(1, 512), &["keep 2", "--fabric-cpus"]);
    // Three cores: the VM owns two of them with their siblings, and two pCPUs are left.
    desired.workers.cpus.clear();
    desired.vms.insert(name("old"), high(2, 512));
    observed.host.cpus.extend([cpu(4, 2), cpu(5, 2)]);
    let mut normal = high(3, 512);
    normal.vm.latency_sensitivity = LatencySensitivity::Normal;
    normal.vm.cpu.reservation = CpuReservation::Percent(66);
    assert_eq!(admit(&desired, &observed, &name("new"), &normal), Ok(()));
    normal.vm.cpu.reservation = CpuReservation::Full;
    refused(
        &desired,
        &observed,
        &normal,
        &["over-committed", "own 4 of its 6 pCPUs", "3 would be reserved of the 2"],
    );
}

#[test]
fn what_a_running_vm_has_and_what_it_gets_at_its_next_start_are_both_promised() {
    let mut observed = host(8);
    let mut desired = Desired::default();
    desired.vms.insert(name("old"), high(4, 2048));
    let size = Some(MachineSize { vcpus: 4, memory: Bytes::mib(2048), queue_pairs: Bytes(0) });
    let machine = MachineSeen { size, ..MachineSeen::default() };
    let process = Some(Process { machine, ..Process::default() });
    observed.vms.insert(name("old"), VmSeen { process, ..VmSeen::default() });
    let new = high(1, 2048);
    refused(&desired, &observed, &new, &["1792 MiB are unreserved"]);
    desired.vms.insert(name("old"), high(1, 512));
    refused(&desired, &observed, &new, &["1792 MiB are unreserved"]);
    refused(&desired, &observed, &high(4, 512), &["running VMs have reserved 4; 1 are missing"]);
    observed.vms.clear();
    assert_eq!(admit(&desired, &observed, &name("new"), &new), Ok(()), "it runs with less now");
}

#[test]
fn first_hour_the_most_memory_that_a_refusal_names_is_accepted() {
    let mut observed = host(2);
    // Between two steps of a VM's memory.
    observed.host.memory_total = Bytes((24_105 << 20) + 4096);
    let of = |mib: u64| vm(&serde_json::json!({ "power": "on", "memory": format!("{mib}MiB") }));
    let desired = Desired::default();
    let refusal = |observed: &Observed, mib| admit(&desired, observed, &name("new"), &of(mib)).unwrap_err();
    let error = refusal(&observed, 24_106);
    assert_eq!(
        error.message,
        "VM `new` cannot be started: its memory of 24106MiB is more than the whole host has: 24104MiB"
    );
    assert!(error.hint.starts_with("give it at most 24104MiB of memory;"), "{error}");
    assert_eq!(admit(&desired, &observed, &name("new"), &of(24_104)), Ok(()), "as the hint says");

    let runs = VmSeen { process: Some(Process::default()), ..VmSeen::default() };
    observed.vms.insert(name("new"), runs);
    let message = refusal(&observed, 24_106).message;
    assert!(
        message.starts_with("VM `new` runs, and could not be started again with this memory: "),
        "{message}"
    );
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

/// `TAUT_PLAN_CASES` sets the number of cases, as for placements.
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
            observed.host.cpus.iter_mut().for_each(|cpu| cpu.core /= 2);
        }
        let mut report = HostReport::default();
        let mut desired = Desired::default();
        for (step, (number, vm)) in vms.into_iter().enumerate() {
            let vm_name = name(&format!("vm{number}"));
            if admit_reservations(&desired, &observed, &report, &vm_name, &vm).is_ok() {
                desired.vms.insert(vm_name, vm);
            }
            if let Some(gone) = off.get(&step) {
                desired.vms.remove(&name(&format!("vm{gone}")));
            }
            let placement = place_exclusive_vcpus(&desired, &observed, &report);
            prop_assert!(placement.short.is_empty(), "admitted, and short: {:?}", placement.short);
            let owner = |cpus: &Vec<u32>| VmReport { cpus: cpus.clone(), ..VmReport::default() };
            let owners = placement.granted.iter();
            report.vms = owners.map(|(name, grant)| (name.clone(), owner(&grant.cpus))).collect();
            let memory: u64 = desired.vms.values().map(|vm| reserved_memory(&vm.vm).0).sum();
            prop_assert!(memory <= reservable_memory(observed.host.memory_total).0);
            let promised: u64 = desired.vms.values().map(|vm| reserved_cpu(&vm.vm, &observed.host)).sum();
            prop_assert!(promised <= u64::from(cpus - 1) * 1000);
            let left = (observed.host.cpus.len() - placement.exclusive().len()) as u64 * 1000;
            prop_assert!(state_problem(&desired, &observed, &report).promised <= left);
        }
    }
}
