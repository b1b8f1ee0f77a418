//! Dense mode: fewer interrupts and kicks for everybody who asked for nothing else, while the host is loaded (DM-1 to DM-6).
//!
//! The load is tested every so often. When all three thresholds are reached, dense mode is in force from this test on; when any
//! one is not, it is in force nowhere from this test on. In between nothing changes, except that whoever turns the mode off
//! need not wait.

use taut_api::host::HostSettings;
use taut_api::tune::{TuneMode, TuneReading, TuneState, TuneTest};
use taut_api::vm::{LatencySensitivity, NicModel};

use crate::{Desired, Observed, Owner};

/// What becomes of dense mode at this time (`now_ms`, wall clock); with a reading, a test is due.
pub fn rule(settings: &HostSettings, before: &TuneState, now_ms: u64, due: Option<TuneReading>) -> TuneState {
    let (on, test) = match (settings.tune_mode, due) {
        (TuneMode::Default, _) => (false, None),
        (TuneMode::Dense, None) => (before.on, before.test.clone()),
        (TuneMode::Dense, Some(reading)) => {
            // Settings are checked when they are written.
            let limits = settings.tune_threshold().unwrap_or_default().resolve(reading.pcpus);
            let test = TuneTest { at_ms: now_ms, reading, limits };
            (test.dense(), Some(test))
        }
    };
    let changed_ms = if on == before.on { before.changed_ms } else { Some(now_ms) };
    TuneState { on, test, changed_ms }
}

/// VMs that run, and how many vCPUs they have.
pub fn running(desired: &Desired, observed: &Observed) -> (u32, u32) {
    let runs = |name| observed.vms.get(name).is_some_and(|seen| seen.process.is_some());
    let running = desired.vms.iter().filter(|(name, _)| runs(*name));
    running.fold((0, 0), |(vms, vcpus), (_, vm)| (vms + 1, vm.vm.vcpus.saturating_add(vcpus)))
}

/// Is the owner's port one that dense mode changes? Not when it has a moderation of its own, nor a card of a VM with
/// latency sensitivity, nor one that QEMU emulates (DM-5).
pub fn governs(desired: &Desired, owner: &Owner) -> bool {
    match owner {
        Owner::Nic(name, index) => desired.vms.get(name).is_some_and(|vm| {
            let regular = vm.vm.latency_sensitivity == LatencySensitivity::Normal;
            let card = vm.vm.nics.get(*index);
            regular && card.is_some_and(|nic| nic.model == NicModel::Virtio && nic.coalescing.is_default())
        }),
        Owner::External(name) => desired.external.get(name).is_some_and(|port| port.coalescing.is_default()),
        Owner::Netns(_) | Owner::Vmci(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use taut_api::vm::VmDesired;
    use taut_api::{Coalescing, Name};

    use super::*;
    use crate::{Process, VmSeen, coalescing};

    fn settings(mode: TuneMode, threshold: &str) -> HostSettings {
        HostSettings { tune_mode: mode, tune_threshold: threshold.to_owned(), ..HostSettings::default() }
    }

    fn reading(vms: u32, vcpus: u32, utilisation: Option<u32>) -> TuneReading {
        TuneReading { pcpus: 2, vms, vcpus, utilisation, excluded: Vec::new() }
    }

    #[test]
    fn each_threshold_alone_switches_it_off() {
        let dense = settings(TuneMode::Dense, "1n 2n 50");
        let on = rule(&dense, &TuneState::default(), 1, Some(reading(2, 4, Some(50))));
        assert!(on.on);
        assert_eq!(on.changed_ms, Some(1));
        for lost in
            [reading(1, 4, Some(50)), reading(2, 3, Some(50)), reading(2, 4, Some(49)), reading(2, 4, None)]
        {
            let off = rule(&dense, &on, 2, Some(lost.clone()));
            assert_eq!((off.on, off.changed_ms), (false, Some(2)), "{lost:?}");
        }
        // Not before the next test, whatever the settings say by then.
        let raised = settings(TuneMode::Dense, "9 9 99");
        assert_eq!(rule(&raised, &on, 3, None), on);
        assert!(!rule(&raised, &on, 3, Some(reading(2, 4, Some(98)))).on);
        let never = rule(&settings(TuneMode::Default, "0 0 0"), &on, 4, None);
        assert_eq!((never.on, never.test, never.changed_ms), (false, None, Some(4)));
    }

    /// What happens from one look at the host to the next.
    #[derive(Debug, Clone)]
    struct Step {
        settings: HostSettings,
        due: Option<TuneReading>,
    }

    fn step() -> impl Strategy<Value = Step> {
        let settings = (any::<bool>(), 0..4u32, any::<bool>(), 0..8u32, 0..=100u32);
        let settings = settings.prop_map(|(dense, vms, n, vcpus, percent)| {
            let mode = if dense { TuneMode::Dense } else { TuneMode::Default };
            settings_of(mode, vms, n, vcpus, percent)
        });
        let reading = (1..4u32, 0..10u32, 0..20u32, prop::option::of(0..=100u32));
        let reading = reading.prop_map(|(pcpus, vms, vcpus, utilisation)| TuneReading {
            pcpus,
            vms,
            vcpus,
            utilisation,
            excluded: Vec::new(),
        });
        (settings, prop::option::of(reading)).prop_map(|(settings, due)| Step { settings, due })
    }

    fn settings_of(mode: TuneMode, vms: u32, n: bool, vcpus: u32, percent: u32) -> HostSettings {
        let n = if n { "n" } else { "" };
        settings(mode, &format!("{vms}{n} {vcpus}{n} {percent}"))
    }

    /// A VM for every combination of what matters, with an own setting on its second card; and external ports.
    fn world() -> Desired {
        let mut desired = Desired::default();
        for sensitivity in ["normal", "high", "high-ht"] {
            let vm: VmDesired = serde_json::from_value(serde_json::json!({
                "latency_sensitivity": sensitivity,
                "nic": [
                    { "portgroup": "lan" },
                    { "portgroup": "lan", "coalescing": "rbc:4000" },
                    { "portgroup": "lan", "model": "e1000" },
                ],
            }))
            .unwrap();
            desired.vms.insert(sensitivity.parse().unwrap(), vm);
        }
        for (name, own) in [("default", "default"), ("own", "disabled")] {
            let port = serde_json::json!({ "portgroup": "lan", "socket": "/s", "coalescing": own });
            desired.external.insert(name.parse().unwrap(), serde_json::from_value(port).unwrap());
        }
        desired
    }

    fn owners(desired: &Desired) -> Vec<Owner> {
        desired.ports().map(|(owner, ..)| owner).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        /// Over any load: never on without all three at the last test, off at the next test when one is lost, and no
        /// change between tests.
        #[test]
        fn it_agrees_with_the_last_test(trace in vec(step(), 0..40)) {
            let mut state = TuneState::default();
            for (now, Step { settings, due }) in trace.into_iter().enumerate() {
                let now = now as u64;
                let next = rule(&settings, &state, now, due.clone());
                let changed = next.on != state.on;
                match (settings.tune_mode, &due) {
                    (TuneMode::Default, _) => prop_assert!(!next.on),
                    (TuneMode::Dense, None) => prop_assert!(!changed),
                    (TuneMode::Dense, Some(reading)) => {
                        let wanted = settings.tune_threshold().unwrap().resolve(reading.pcpus);
                        let all = reading.vms >= wanted.vms
                            && reading.vcpus >= wanted.vcpus
                            && reading.utilisation.is_some_and(|percent| percent >= wanted.utilisation);
                        prop_assert_eq!(next.on, all);
                    }
                }
                prop_assert!(!next.on || next.test.as_ref().is_some_and(TuneTest::dense));
                prop_assert_eq!(next.changed_ms == Some(now), changed || state.changed_ms == Some(now));
                state = next;
            }
        }

        /// Whatever the load does: those that are not to be touched keep what they have.
        #[test]
        fn a_vm_that_is_sensitive_or_has_its_own_is_never_touched(trace in vec(step(), 0..40)) {
            let mut desired = world();
            let mut observed = Observed::default();
            let never = Observed::default();
            for (now, Step { settings, due }) in trace.into_iter().enumerate() {
                observed.tune = rule(&settings, &observed.tune, now as u64, due);
                desired.host = settings;
                for owner in owners(&desired) {
                    let text = owner.to_string();
                    let regular = ["vm/normal/nic0", "external/default"].contains(&text.as_str());
                    prop_assert_eq!(governs(&desired, &owner), regular, "{}", text);
                    let without = coalescing::rule(&desired, &never, &owner);
                    let wanted = if regular && observed.tune.on { Some(Coalescing::Dense) } else { without };
                    prop_assert_eq!(coalescing::rule(&desired, &observed, &owner), wanted, "{}", text);
                }
            }
        }
    }

    #[test]
    fn only_what_runs_is_counted() {
        let mut desired = Desired::default();
        let mut observed = Observed::default();
        let process = Process {
            pid: 1,
            kind: taut_api::vm::VmKind::Micro,
            accelerator: String::new(),
            stopping: false,
            sockets: std::collections::BTreeSet::new(),
            vmci: false,
            locked: false,
            cpu_pm: false,
            machine: crate::MachineSeen::default(),
        };
        for (name, vcpus, process) in
            [("a", 2, Some(process.clone())), ("b", 4, None), ("gone", 0, Some(process))]
        {
            let name: Name = name.parse().unwrap();
            observed.vms.insert(name.clone(), VmSeen { process, ..VmSeen::default() });
            if vcpus > 0 {
                let vm = serde_json::from_value(serde_json::json!({ "vcpus": vcpus })).unwrap();
                desired.vms.insert(name, vm);
            }
        }
        assert_eq!(running(&desired, &observed), (1, 2));
    }
}
