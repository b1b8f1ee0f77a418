//! LRO: the ports for which the fabric merges TCP segments (VN-12).

use taut_api::host::Toggle;
use taut_api::vm::NicModel;

use crate::facts::{Desired, Owner};

/// Returns whether LRO is on for the owner's port. The host's setting and the vNIC's own must both
/// be on; external ports have no setting of their own.
pub fn choose_lro(desired: &Desired, owner: &Owner) -> bool {
    let own = match owner {
        Owner::Nic(vm, index) => {
            let nic = desired.vms.get(vm).and_then(|vm| vm.vm.nics.get(*index));
            // Merging waits for more segments, so the default is off where latency counts (LS-7).
            let default = !desired.is_latency_sensitive(vm);
            nic.is_some_and(|nic| nic.model == NicModel::Virtio && nic.lro.unwrap_or(default))
        }
        Owner::External(_) => true,
        // The host's own network stack merges segments by itself, and the card's driver does so
        // before frames arrive at an uplink.
        Owner::Netns(_) | Owner::Vmci(_) | Owner::Netdev(_) | Owner::Uplink(_) => false,
    };
    own && desired.host.lro == Toggle::On
}

#[cfg(test)]
mod tests {
    use taut_api::vm::{LatencySensitivity, VmDesired};

    use super::*;

    #[test]
    fn the_hosts_setting_and_the_vnics_own_must_both_be_on() {
        let vm: VmDesired = serde_json::from_value(serde_json::json!({ "nic": [
            { "portgroup": "lan" },
            { "portgroup": "lan", "lro": false },
            { "portgroup": "lan", "model": "e1000" },
        ]}))
        .unwrap();
        let name: taut_api::Name = "db1".parse().unwrap();
        let mut desired = Desired::default();
        desired.vms.insert(name.clone(), vm);
        let of =
            |desired: &Desired| [0, 1, 2].map(|index| choose_lro(desired, &Owner::Nic(name.clone(), index)));
        assert_eq!(of(&desired), [true, false, false]);
        assert!(!choose_lro(&desired, &Owner::Netns("ns".parse().unwrap())));
        desired.vms.get_mut(&name).unwrap().vm.latency_sensitivity = LatencySensitivity::High;
        assert_eq!(of(&desired), [false; 3]);
        desired.vms.get_mut(&name).unwrap().vm.nics[0].lro = Some(true);
        assert_eq!(of(&desired), [true, false, false], "the setting of the vNIC overrides the default");
        desired.host.lro = Toggle::Off;
        assert_eq!(of(&desired), [false; 3]);
    }
}
