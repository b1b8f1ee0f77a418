//! Dense mode: fewer interrupts and kicks while the host is loaded (DM-1 to DM-6).
//!
//! The load is tested at intervals. A test that finds all three thresholds reached turns dense mode
//! on, and any other test turns it off. Between tests it does not change, except that setting
//! `Net.NetTuneHostMode` to `default` turns it off at once.

use taut_api::host::HostSettings;
use taut_api::tune::{TuneMode, TuneReading, TuneState, TuneTest};
use taut_api::vm::{LatencySensitivity, NicModel};

use crate::facts::{Desired, Observed, Owner};

/// Updates the state of dense mode. `now_ms` is the wall clock; `due` is the load, if it is time
/// for a test.
pub fn update_dense_mode(
    settings: &HostSettings,
    before: &TuneState,
    now_ms: u64,
    due: Option<TuneReading>,
) -> TuneState {
    let (on, test) = match (settings.tune_mode, due) {
        (TuneMode::Default, _) => (false, None),
        (TuneMode::Dense, None) => (before.on, before.test.clone()),
        (TuneMode::Dense, Some(reading)) => {
            // The host's settings were checked when they were written.
            let limits = settings.tune_threshold().unwrap_or_default().resolve(reading.pcpus);
            let test = TuneTest { at_ms: now_ms, reading, limits };
            (test.dense(), Some(test))
        }
    };
    let changed_ms = if on == before.on { before.changed_ms } else { Some(now_ms) };
    TuneState { on, test, changed_ms }
}

/// Number of VMs that run, and of their vCPUs.
pub fn count_running(desired: &Desired, observed: &Observed) -> (u32, u32) {
    let running = desired.vms.iter().filter(|(name, _)| observed.process(name).is_some());
    running.fold((0, 0), |(vms, vcpus), (_, vm)| (vms + 1, vm.vm.vcpus.saturating_add(vcpus)))
}

/// Returns whether dense mode changes the owner's port. It leaves alone ports with coalescing of
/// their own, vNICs of latency-sensitive VMs, and vNICs that QEMU emulates (DM-5).
pub fn is_governed(desired: &Desired, owner: &Owner) -> bool {
    match owner {
        Owner::Nic(name, index) => desired.vms.get(name).is_some_and(|vm| {
            let regular = vm.vm.latency_sensitivity == LatencySensitivity::Normal;
            let nic = vm.vm.nics.get(*index);
            regular && nic.is_some_and(|nic| nic.model == NicModel::Virtio && nic.coalescing.is_default())
        }),
        Owner::External(name) => desired.external.get(name).is_some_and(|port| port.coalescing.is_default()),
        Owner::Netns(_) | Owner::Vmci(_) | Owner::Netdev(_) | Owner::Uplink(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use taut_api::vm::{VmDesired, VmKind};
    use taut_api::{Coalescing, Name};

    use super::*;
    use crate::facts::{Process, VmSeen};
    use crate::network::coalescing::choose_coalescing;

    fn settings(mode: TuneMode, threshold: &str) -> HostSettings {
        HostSettings { tune_mode: mode, tune_threshold: threshold.to_owned(), ..HostSettings::default() }
    }

    fn reading(vms: u32, vcpus: u32, utilisation: Option<u32>) -> TuneReading {
        TuneReading { pcpus: 2, vms, vcpus, utilisation, excluded: Vec::new() }
    }

    #[test]
    fn missing_one_threshold_turns_dense_mode_off() {
        let dense = settings(TuneMode::Dense, "1n 2n 50");
        let on = update_dense_mode(&dense, &TuneState::default(), 1, Some(reading(2, 4, Some(50))));
        assert!(on.on);
        assert_eq!(on.changed_ms, Some(1));
        for lost in
            [reading(1, 4, Some(50)), reading(2, 3, Some(50)), reading(2, 4, Some(49)), reading(2, 4, None)]
        {
            let off = update_dense_mode(&dense, &on, 2, Some(lost.clone()));
            assert_eq!((off.on, off.changed_ms), (false, Some(2)), "{lost:?}");
        }
        // Changed thresholds count from the next test on.
        let raised = settings(TuneMode::Dense, "9 9 99");
        assert_eq!(update_dense_mode(&raised, &on, 3, None), on);
        assert!(!update_dense_mode(&raised, &on, 3, Some(reading(2, 4, Some(98)))).on);
        let never = update_dense_mode(&settings(TuneMode::Default, "0 0 0"), &on, 4, None);
        assert_eq!((never.on, never.test, never.changed_ms), (false, None, Some(4)));
    }

    /// One round: the settings, and the load if a test is due.
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

    /// A VM of each latency sensitivity, with a setting of its own on the second vNIC, and external
    /// ports with and without a setting.
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

        /// Under any load, dense mode is on exactly if the last test reached all three thresholds,
        /// and does not change between tests.
        #[test]
        fn dense_mode_agrees_with_the_last_test(trace in vec(step(), 0..40)) {
            let mut state = TuneState::default();
            for (now, Step { settings, due }) in trace.into_iter().enumerate() {
                let now = now as u64;
                let next = update_dense_mode(&settings, &state, now, due.clone());
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

        /// Under any load, latency-sensitive VMs and ports with a setting of their own keep their
        /// coalescing.
        #[test]
        fn dense_mode_leaves_sensitive_vms_and_own_settings_alone(trace in vec(step(), 0..40)) {
            let mut desired = world();
            let mut observed = Observed::default();
            let never = Observed::default();
            for (now, Step { settings, due }) in trace.into_iter().enumerate() {
                observed.tune = update_dense_mode(&settings, &observed.tune, now as u64, due);
                desired.host = settings;
                for owner in owners(&desired) {
                    let text = owner.to_string();
                    let regular = ["vm/normal/nic0", "external/default"].contains(&text.as_str());
                    prop_assert_eq!(is_governed(&desired, &owner), regular, "{}", text);
                    let without = choose_coalescing(&desired, &never, &owner);
                    let wanted = if regular && observed.tune.on { Some(Coalescing::Dense) } else { without };
                    prop_assert_eq!(choose_coalescing(&desired, &observed, &owner), wanted, "{}", text);
                }
            }
        }
    }

    #[test]
    fn only_running_vms_are_counted() {
        let mut desired = Desired::default();
        let mut observed = Observed::default();
        let process = Process { kind: VmKind::Micro, ..Process::default() };
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
        assert_eq!(count_running(&desired, &observed), (1, 2));
    }
}
