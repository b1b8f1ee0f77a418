use proptest::collection::vec;
use proptest::prelude::*;
use taut_api::enforcement::{Controllers, VmReport};
use taut_api::shares::Shares;

use super::*;
use crate::facts::reservation::reservable_memory;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn vm(json: &serde_json::Value) -> VmDesired {
    let mut all = serde_json::json!({ "power": "on", "memory": "256MiB" });
    all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn host(hierarchy: Hierarchy, swap: bool) -> Observed {
    let host = HostSeen {
        memory_total: Bytes::mib(4096),
        swap_total: Bytes::mib(if swap { 1024 } else { 0 }),
        cpu_mhz: 2000,
        controllers: Controllers { cpu: hierarchy, memory: hierarchy, cpuset: hierarchy, disk: hierarchy },
        ..HostSeen::default()
    };
    Observed { host, ..Observed::default() }
}

fn told(desired: &Desired, observed: &Observed, report: &HostReport, vm: &str) -> Explanation {
    let groups = share_cpu_and_memory(desired, observed);
    explain_shares(desired, observed, report, &groups, &name(vm), &desired.vms[&name(vm)])
}

fn vms(all: Vec<(&str, serde_json::Value)>) -> Desired {
    let vms = all.into_iter().map(|(text, json)| (name(text), vm(&json))).collect();
    Desired { vms, ..Desired::default() }
}

#[test]
fn no_vm_has_a_group_until_one_needs_it() {
    let plain = serde_json::json!({});
    let observed = host(Hierarchy::V1, false);
    let mut desired =
        vms(vec![("a", plain.clone()), ("b", serde_json::json!({ "cpu": { "limit": "100%" } }))]);
    assert!(share_cpu_and_memory(&desired, &observed).is_empty());
    assert_eq!(told(&desired, &observed, &HostReport::default(), "a"), Explanation::default());
    desired.vms.insert(
        name("c"),
        vm(&serde_json::json!({ "vcpus": 2, "cpu": { "shares": "high", "limit": "2000MHz" } })),
    );
    let all = share_cpu_and_memory(&desired, &observed);
    assert_eq!(all.len(), 3, "shares are compared with shares");
    assert_eq!((all[&name("a")].cpu_shares, all[&name("a")].cpu_limit), (1000, None));
    assert_eq!((all[&name("c")].cpu_shares, all[&name("c")].cpu_limit), (4000, Some(1000)));
    desired.vms.get_mut(&name("c")).unwrap().power = Power::Off;
    assert!(share_cpu_and_memory(&desired, &observed).is_empty());
    // Only cgroup v2 can enforce a partial memory reservation.
    desired.vms.insert(name("d"), vm(&serde_json::json!({ "memory_reservation": "64MiB" })));
    assert!(share_cpu_and_memory(&desired, &observed).is_empty());
    assert_eq!(
        share_cpu_and_memory(&desired, &host(Hierarchy::V2, false))[&name("d")].memory_min,
        Bytes::mib(64)
    );
    let restored = Observed { restored: true, ..host(Hierarchy::V2, false) };
    assert!(share_cpu_and_memory(&desired, &restored).is_empty());
}

#[test]
fn settings_that_cannot_be_enforced_are_missing_with_the_reason() {
    let json =
        serde_json::json!({ "memory_limit": "128MiB", "memory_shares": "low", "cpu": { "limit": "25%" } });
    let desired = vms(vec![("a", json), ("b", serde_json::json!({}))]);
    let told = |observed: Observed| told(&desired, &observed, &HostReport::default(), "a");
    let nothing = told(host(Hierarchy::None, false));
    assert_eq!((nothing.missing.len(), nothing.decisions.len()), (3, 0), "{nothing:?}");
    let v1 = told(host(Hierarchy::V1, false));
    assert!(v1.missing[0].contains("no swap"), "{v1:?}");
    assert_eq!(v1.decisions[0].decision, "it has 1000 of all running VMs' 2000 CPU shares (normal)");
    assert_eq!(v1.decisions[1].decision, "it gets 0.25 pCPUs at most (25%)");
    let v2 = told(host(Hierarchy::V2, true));
    assert!(v2.missing.is_empty(), "{v2:?}");
    assert!(v2.decisions[3].decision.starts_with("above 128MiB its memory is swapped out"), "{v2:?}");
}

#[test]
fn memory_that_one_vm_cannot_use_goes_to_the_others_by_shares() {
    // 3840 MiB can be reserved; 1024 of them are.
    let desired = vms(vec![
        ("a", serde_json::json!({ "memory": "2048MiB", "memory_reservation": "1024MiB" })),
        ("b", serde_json::json!({ "memory": "2048MiB", "memory_shares": "high" })),
        ("c", serde_json::json!({ "memory": "2048MiB", "memory_limit": "256MiB" })),
    ]);
    let all = share_cpu_and_memory(&desired, &host(Hierarchy::V2, true));
    let mib = |text: &str| all[&name(text)].memory_low.as_mib();
    // The limit takes 256 of 2816; of the rest 1 : 2, as far as b has room.
    assert_eq!((mib("a"), mib("b"), mib("c")), (1024 + 853, 1706, 256));
}

proptest! {
    #[test]
    fn divided_memory_never_exceeds_capacity(
        sizes in vec((1..2000u64, 0..2000u64, 1..3000u64, 1..=Shares::MOST), 1..20),
    ) {
        let mut desired = Desired::default();
        let observed = host(Hierarchy::V2, true);
        let capacity = reservable_memory(observed.host.memory_total).0;
        let mut promised = 0;
        for (number, (size, reserved, limit, shares)) in sizes.into_iter().enumerate() {
            let reserved = reserved.min(size);
            if promised + (reserved << 20) > capacity {
                continue;
            }
            promised += reserved << 20;
            let json = serde_json::json!({
                "memory": format!("{size}MiB"), "memory_reservation": format!("{reserved}MiB"),
                "memory_limit": format!("{}MiB", limit.max(reserved).max(1)), "memory_shares": shares,
            });
            desired.vms.insert(name(&format!("vm{number}")), vm(&json));
        }
        let all = share_cpu_and_memory(&desired, &observed);
        let total: u64 = all.values().map(|entitlement| entitlement.memory_low.0).sum();
        prop_assert!(total <= capacity);
        for (name, entitlement) in &all {
            let spec = &desired.vms[name].vm;
            let most = spec.memory_limit.of(spec.memory).unwrap_or(spec.memory);
            let GroupSettings { memory_min: reserved, memory_low: entitled, .. } = *entitlement;
            prop_assert!(reserved <= entitled && entitled <= most);
        }
        // No VM lacks memory while some is left, except for rounding.
        let wants: u64 = desired.vms.values().map(|vm| vm.vm.memory_limit.of(vm.vm.memory).unwrap_or(vm.vm.memory).0).sum();
        prop_assert!(all.is_empty() || total + 20 >= wants.min(capacity));
    }
}

#[test]
fn disk_weights_are_set_as_soon_as_one_differs() {
    let disk = |shares: &str| serde_json::json!({ "disk": { "path": "/d", "shares": shares } });
    let mut desired = vms(vec![("a", disk("high")), ("b", disk("normal")), ("c", serde_json::json!({}))]);
    let observed = host(Hierarchy::V2, false);
    let shares = |desired: &Desired| {
        share_cpu_and_memory(desired, &observed).into_values().map(|it| it.disk_shares).collect::<Vec<_>>()
    };
    assert_eq!(shares(&desired), [Some(2000), Some(1000), None]);
    let nothing = HostReport::default();
    let has = |status: &Explanation| {
        status.decisions.iter().any(|it| it.decision.starts_with("its disk has 2000 shares (high)"))
    };
    let all = told(&desired, &observed, &nothing, "a");
    assert!(has(&all) && all.missing.is_empty());
    let weightless = VmReport { weightless: Some("no such file".to_owned()), ..VmReport::default() };
    let report = HostReport { vms: [(name("a"), weightless)].into(), ..HostReport::default() };
    let unweighed = told(&desired, &observed, &report, "a");
    assert!(!has(&unweighed) && unweighed.missing == ["no such file"]);
    let mut without = observed.clone();
    without.host.controllers.disk = Hierarchy::None;
    let unweighed = told(&desired, &without, &nothing, "a");
    assert!(!has(&unweighed) && unweighed.missing[0].contains("no blkio controller"));
    desired.vms.insert(name("a"), vm(&disk("normal")));
    assert!(shares(&desired).is_empty(), "no VM needs a group");
}

#[test]
fn only_cgroup_v2_enforces_a_partial_memory_reservation() {
    let part = serde_json::json!({ "memory_reservation": "64MiB" });
    let desired = vms(vec![("a", part), ("b", serde_json::json!({ "memory_reservation": "full" }))]);
    let missing = |text: &str, hierarchy| {
        told(&desired, &host(hierarchy, false), &HostReport::default(), text).missing.join("; ")
    };
    assert_eq!(missing("a", Hierarchy::V2), "");
    for hierarchy in [Hierarchy::V1, Hierarchy::None] {
        let text = missing("a", hierarchy);
        assert!(
            text.starts_with("its memory reservation of 64MiB of 256MiB is counted")
                && text.contains("hint: "),
            "{text}"
        );
        assert_eq!(missing("b", hierarchy), "", "it is locked");
    }
}
