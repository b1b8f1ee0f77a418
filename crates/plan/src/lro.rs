//! For which ports segments are merged (VN-12).

use taut_api::host::Toggle;
use taut_api::vm::NicModel;

use crate::{Desired, Owner};

/// Is LRO on for the owner's port? It takes the host's switch and the card's own, which others' rings do not have.
pub fn rule(desired: &Desired, owner: &Owner) -> bool {
    let own = match owner {
        Owner::Nic(vm, index) => {
            let nic = desired.vms.get(vm).and_then(|vm| vm.vm.nics.get(*index));
            nic.is_some_and(|nic| nic.model == NicModel::Virtio && nic.lro)
        }
        Owner::External(_) => true,
        // The host's own stack merges for itself.
        Owner::Netns(_) | Owner::Vmci(_) => false,
    };
    own && desired.host.lro == Toggle::On
}

#[cfg(test)]
mod tests {
    use taut_api::vm::VmDesired;

    use super::*;

    #[test]
    fn the_hosts_switch_and_the_cards_own_must_both_be_on() {
        let vm: VmDesired = serde_json::from_value(serde_json::json!({ "nic": [
            { "portgroup": "lan" },
            { "portgroup": "lan", "lro": false },
            { "portgroup": "lan", "model": "e1000" },
        ]}))
        .unwrap();
        let name: taut_api::Name = "db1".parse().unwrap();
        let mut desired = Desired::default();
        desired.vms.insert(name.clone(), vm);
        let of = |desired: &Desired| [0, 1, 2].map(|index| rule(desired, &Owner::Nic(name.clone(), index)));
        assert_eq!(of(&desired), [true, false, false]);
        assert!(!rule(&desired, &Owner::Netns("ns".parse().unwrap())));
        desired.host.lro = Toggle::Off;
        assert_eq!(of(&desired), [false; 3]);
    }
}
