use proptest::collection::vec;
use proptest::prelude::*;
use taut_api::shares::Shares;

use super::*;
use crate::observed::Controllers;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn vm(json: &serde_json::Value) -> VmDesired {
    let mut all = serde_json::json!({ "power": "on", "memory": "256MiB" });
    all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn host(hierarchy: Hierarchy, swap: bool) -> Observed {
    Observed {
        memory_total: Bytes::mib(4096),
        swap_total: Bytes::mib(if swap { 1024 } else { 0 }),
        cpu_mhz: 2000,
        controllers: Controllers { cpu: hierarchy, memory: hierarchy, cpuset: hierarchy, disk: hierarchy },
        ..Observed::default()
    }
}

fn vms(all: Vec<(&str, serde_json::Value)>) -> Desired {
    let vms = all.into_iter().map(|(text, json)| (name(text), vm(&json))).collect();
    Desired { vms, ..Desired::default() }
}

#[test]
fn nobody_has_a_group_until_somebody_asks_for_something() {
    let plain = serde_json::json!({});
    let observed = host(Hierarchy::V1, false);
    let mut desired =
        vms(vec![("a", plain.clone()), ("b", serde_json::json!({ "cpu": { "limit": "100%" } }))]);
    assert!(rule(&desired, &observed).is_empty());
    assert_eq!(
        explain(
            &desired,
            &observed,
            &Decided::new(&desired, &observed),
            &name("a"),
            &desired.vms[&name("a")]
        ),
        None
    );
    desired.vms.insert(
        name("c"),
        vm(&serde_json::json!({ "vcpus": 2, "cpu": { "shares": "high", "limit": "2000MHz" } })),
    );
    let all = rule(&desired, &observed);
    assert_eq!(all.len(), 3, "shares are compared with shares");
    assert_eq!((all[&name("a")].cpu_shares, all[&name("a")].cpu_limit), (1000, None));
    assert_eq!((all[&name("c")].cpu_shares, all[&name("c")].cpu_limit), (4000, Some(1000)));
    desired.vms.get_mut(&name("c")).unwrap().power = Power::Off;
    assert!(rule(&desired, &observed).is_empty());
    // A reservation is something that only cgroup v2 can keep.
    desired.vms.insert(name("d"), vm(&serde_json::json!({ "memory_reservation": "64MiB" })));
    assert!(rule(&desired, &observed).is_empty());
    assert_eq!(rule(&desired, &host(Hierarchy::V2, false))[&name("d")].memory.reserved, Bytes::mib(64));
    let restored = Observed { restored: true, ..host(Hierarchy::V2, false) };
    assert!(rule(&desired, &restored).is_empty());
}

#[test]
fn a_limit_below_the_reservation_is_refused_with_both() {
    let observed = host(Hierarchy::V2, true);
    let refused = |json| check(&observed, &name("a"), &vm(&json).vm).unwrap_err().message;
    let cpu =
        refused(serde_json::json!({ "vcpus": 2, "cpu": { "reservation": "full", "limit": "3000MHz" } }));
    assert_eq!(cpu, "VM `a` reserves 2 pCPUs and is limited to 1.5 of them");
    let memory = refused(serde_json::json!({ "memory_reservation": "full", "memory_limit": "128MiB" }));
    assert_eq!(memory, "VM `a` reserves 256MiB of memory and is limited to 128MiB of it");
    let fine = serde_json::json!({ "memory_reservation": "128MiB", "memory_limit": "128MiB", "cpu": { "reservation": "50%", "limit": "50%" } });
    assert_eq!(check(&observed, &name("a"), &vm(&fine).vm), Ok(()));
}

#[test]
fn what_cannot_be_enforced_is_missing_and_says_why() {
    let json =
        serde_json::json!({ "memory_limit": "128MiB", "memory_shares": "low", "cpu": { "limit": "25%" } });
    let desired = vms(vec![("a", json), ("b", serde_json::json!({}))]);
    let told = |observed: &Observed| {
        explain(&desired, observed, &Decided::new(&desired, observed), &name("a"), &desired.vms[&name("a")])
            .unwrap()
    };
    let nothing = told(&host(Hierarchy::None, false));
    assert_eq!((nothing.missing.len(), nothing.decisions.len()), (3, 0), "{nothing:?}");
    let v1 = told(&host(Hierarchy::V1, false));
    assert!(v1.missing[0].contains("no swap"), "{v1:?}");
    assert_eq!(v1.decisions[0].decision, "it has 1000 of all running VMs' 2000 CPU shares (normal)");
    assert_eq!(v1.decisions[1].decision, "it gets 0.25 pCPUs at most (25%)");
    let v2 = told(&host(Hierarchy::V2, true));
    assert!(v2.missing.is_empty(), "{v2:?}");
    assert!(v2.decisions[3].decision.starts_with("above 128MiB its memory is swapped out"), "{v2:?}");
}

#[test]
fn memory_is_divided_by_shares_and_what_one_cannot_have_goes_to_others() {
    // 3840 MiB can be reserved; 1024 of them are.
    let desired = vms(vec![
        ("a", serde_json::json!({ "memory": "2048MiB", "memory_reservation": "1024MiB" })),
        ("b", serde_json::json!({ "memory": "2048MiB", "memory_shares": "high" })),
        ("c", serde_json::json!({ "memory": "2048MiB", "memory_limit": "256MiB" })),
    ]);
    let all = rule(&desired, &host(Hierarchy::V2, true));
    let mib = |text: &str| all[&name(text)].memory.entitled.as_mib();
    // The limit takes 256 of 2816; of the rest 1 : 2, as far as b has room.
    assert_eq!((mib("a"), mib("b"), mib("c")), (1024 + 853, 1706, 256));
}

proptest! {
    #[test]
    fn entitlements_never_exceed_what_there_is(
        sizes in vec((1..2000u64, 0..2000u64, 1..3000u64, 1..=Shares::MOST), 1..20),
    ) {
        let mut desired = Desired::default();
        let observed = host(Hierarchy::V2, true);
        let capacity = reservable_memory(observed.memory_total).0;
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
        let all = rule(&desired, &observed);
        let total: u64 = all.values().map(|entitlement| entitlement.memory.entitled.0).sum();
        prop_assert!(total <= capacity);
        for (name, entitlement) in &all {
            let spec = &desired.vms[name].vm;
            let most = spec.memory_limit.of(spec.memory).unwrap_or(spec.memory);
            let MemoryEntitlement { reserved, entitled, .. } = entitlement.memory;
            prop_assert!(reserved <= entitled && entitled <= most);
        }
        // Nobody goes without while there is some left, but for what rounding takes.
        let wants: u64 = desired.vms.values().map(|vm| vm.vm.memory_limit.of(vm.vm.memory).unwrap_or(vm.vm.memory).0).sum();
        prop_assert!(all.is_empty() || total + 20 >= wants.min(capacity));
    }
}

#[test]
fn disks_count_as_soon_as_one_differs_and_what_is_missing_is_said() {
    let disk = |shares: &str| serde_json::json!({ "disk": { "path": "/d", "shares": shares } });
    let mut desired = vms(vec![("a", disk("high")), ("b", disk("normal")), ("c", serde_json::json!({}))]);
    let observed = host(Hierarchy::V2, false);
    let shares = |desired: &Desired| {
        rule(desired, &observed).into_values().map(|it| it.disk_shares).collect::<Vec<_>>()
    };
    assert_eq!(shares(&desired), [Some(2000), Some(1000), None]);
    let told = |observed: &Observed| {
        explain(&desired, observed, &Decided::new(&desired, observed), &name("a"), &desired.vms[&name("a")])
            .unwrap()
    };
    let has = |status: &ResourceStatus| {
        status.decisions.iter().any(|it| it.decision.starts_with("its disk has 2000 shares (high)"))
    };
    assert!(has(&told(&observed)) && told(&observed).missing.is_empty());
    let weightless =
        Observed { weightless: [(name("a"), "no such file".to_owned())].into(), ..observed.clone() };
    assert!(!has(&told(&weightless)) && told(&weightless).missing == ["no such file"]);
    let mut without = observed.clone();
    without.controllers.disk = Hierarchy::None;
    assert!(!has(&told(&without)) && told(&without).missing[0].contains("no blkio controller"));
    desired.vms.insert(name("a"), vm(&disk("normal")));
    assert!(shares(&desired).is_empty(), "nobody asks for anything");
}

#[test]
fn a_part_of_memory_is_kept_by_cgroup_v2_alone() {
    let part = serde_json::json!({ "memory_reservation": "64MiB" });
    let desired = vms(vec![("a", part), ("b", serde_json::json!({ "memory_reservation": "full" }))]);
    let missing = |text: &str, hierarchy| {
        let observed = host(hierarchy, false);
        let decided = Decided::new(&desired, &observed);
        let status = explain(&desired, &observed, &decided, &name(text), &desired.vms[&name(text)]);
        status.unwrap_or_default().missing.join("; ")
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
