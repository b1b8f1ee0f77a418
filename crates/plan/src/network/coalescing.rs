//! Interrupt coalescing of each port: its own, dense mode's, or the host's default.

use taut_api::Coalescing;
use taut_api::vm::NicModel;

use super::dense;
use crate::facts::{Desired, Explanation, Observed, Owner, Row};

/// The scheme of the owner's port. `None` for ports without rings of a guest: TAP devices, and
/// vNICs that QEMU emulates.
pub fn choose_coalescing(desired: &Desired, observed: &Observed, owner: &Owner) -> Option<Coalescing> {
    let own = match owner {
        Owner::Nic(vm, index) => {
            let nic = desired.vms.get(vm)?.vm.nics.get(*index)?;
            let own = (nic.model == NicModel::Virtio).then_some(nic.coalescing)?;
            if own.is_default() && desired.is_latency_sensitive(vm) {
                // LS-7: a latency-sensitive VM has no coalescing by default.
                return Some(Coalescing::Disabled);
            }
            own
        }
        Owner::External(name) => desired.external.get(name)?.coalescing,
        Owner::Netns(_) | Owner::Vmci(_) | Owner::Netdev(_) | Owner::Uplink(_) => return None,
    };
    if observed.tune.on && dense::is_governed(desired, owner) {
        return Some(Coalescing::Dense);
    }
    // The host's settings were checked when they were written.
    Some(own.or(desired.host.coalescing().unwrap_or_default()))
}

/// Explains the coalescing and LRO of a latency-sensitive VM (LS-7).
pub(crate) fn explain_no_batching() -> Explanation {
    let mut told = Explanation::default();
    told.decide(
        "coalescing and LRO are off on its virtio vNICs, unless these have settings of their own",
        Row::NoBatching.because("both hold a packet back until more packets come"),
    );
    told
}

#[cfg(test)]
mod tests {
    use taut_api::host::HostSettings;
    use taut_api::vm::{LatencySensitivity, VmDesired};

    use super::*;

    #[test]
    fn a_vnic_has_its_own_scheme_or_the_hosts() {
        let vm: VmDesired = serde_json::from_value(serde_json::json!({ "nic": [
            { "portgroup": "lan" },
            { "portgroup": "lan", "coalescing": "static:16" },
            { "portgroup": "lan", "coalescing": "adapt", "model": "vmxnet3" },
        ]}))
        .unwrap();
        let name: taut_api::Name = "db1".parse().unwrap();
        let mut desired = Desired::default();
        desired.vms.insert(name.clone(), vm);
        let of = |desired: &Desired, index| {
            choose_coalescing(desired, &Observed::default(), &Owner::Nic(name.clone(), index))
        };
        assert_eq!(of(&desired, 0), Some(Coalescing::Rbc { rate: 4000 }));
        desired.host = HostSettings {
            coalesce_scheme: "rbc".into(),
            coalesce_params: "9000".into(),
            ..HostSettings::default()
        };
        assert_eq!(of(&desired, 0), Some(Coalescing::Rbc { rate: 9000 }));
        assert_eq!(of(&desired, 1), Some(Coalescing::Static { packets: 16 }));
        assert_eq!(of(&desired, 2), None);
        desired.vms.get_mut(&name).unwrap().vm.latency_sensitivity = LatencySensitivity::High;
        let sensitive = [0, 1, 2].map(|index| of(&desired, index));
        assert_eq!(sensitive, [Some(Coalescing::Disabled), Some(Coalescing::Static { packets: 16 }), None]);
    }
}
