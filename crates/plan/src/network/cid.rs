//! Context IDs of VMCI devices. A VM's document keeps its context ID until it is deleted.

use std::collections::BTreeSet;

use taut_api::vmci::{Cid, VmciSpec};

use crate::facts::Desired;

/// Gives a VM's device the lowest context ID that no VM has, unless its document names one.
pub fn assign_cid(desired: &Desired, vmci: &mut VmciSpec) {
    if vmci.cid.is_some() {
        return;
    }
    let vms = desired.vms.values();
    let taken: BTreeSet<Cid> = vms.filter_map(|vm| vm.vm.vmci.as_ref()?.cid).collect();
    // There are almost 2^32 context IDs and far fewer VMs, so one is free.
    vmci.cid = (Cid::FIRST.0..=Cid::LAST.0).map(Cid).find(|cid| !taken.contains(cid));
}

#[cfg(test)]
mod tests {
    use taut_api::vm::VmDesired;

    use super::*;

    fn with(cids: &[(&str, u32)]) -> Desired {
        let mut desired = Desired::default();
        for (vm, cid) in cids {
            let document: VmDesired =
                serde_json::from_value(serde_json::json!({ "vmci": { "cid": cid } })).unwrap();
            desired.vms.insert(vm.parse().unwrap(), document);
        }
        desired
    }

    #[test]
    fn a_device_gets_the_lowest_free_cid_and_keeps_its_own() {
        let mut vmci = VmciSpec::default();
        assign_cid(&with(&[("a", 3), ("b", 5)]), &mut vmci);
        assert_eq!(vmci.cid, Some(Cid(4)));
        assign_cid(&with(&[]), &mut vmci);
        assert_eq!(vmci.cid, Some(Cid(4)), "a context ID of its own is kept");
    }
}
