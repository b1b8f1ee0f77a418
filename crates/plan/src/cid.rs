//! Context IDs: given once, kept with the VM's document, free again when it goes.

use std::collections::BTreeSet;

use taut_api::error::ErrorKind;
use taut_api::vmci::{Cid, VmciSpec};
use taut_api::{ApiError, Name};

use crate::Desired;

/// Gives the VM's device the lowest context ID that no VM has, unless it has one of its own.
pub fn assign(desired: &Desired, vmci: &mut VmciSpec) {
    if vmci.cid.is_some() {
        return;
    }
    let taken: BTreeSet<Cid> = given(desired).map(|(_, cid)| cid).collect();
    // There are as many context IDs as numbers, and far fewer VMs.
    vmci.cid = (Cid::FIRST.0..=Cid::LAST.0).map(Cid).find(|cid| !taken.contains(cid));
}

/// May VM `name` have the context ID?
///
/// # Errors
/// [`ErrorKind::Conflict`] when another VM has it, whether or not that one runs.
pub fn is_free(desired: &Desired, name: &Name, cid: Cid) -> Result<(), ApiError> {
    match given(desired).find(|(other, taken)| *other != name && *taken == cid) {
        Some((other, _)) => Err(ApiError::new(
            ErrorKind::Conflict,
            format!("the context ID {cid} of VM `{name}` belongs to VM `{other}`"),
            "leave `cid` (in a .vmx: vmci0.id) out, and taut assigns one that is free",
        )),
        None => Ok(()),
    }
}

fn given(desired: &Desired) -> impl Iterator<Item = (&Name, Cid)> {
    desired.vms.iter().filter_map(|(name, vm)| Some((name, vm.vm.vmci.as_ref()?.cid?)))
}

#[cfg(test)]
mod tests {
    use taut_api::vm::VmDesired;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn with(cids: &[(&str, u32)]) -> Desired {
        let mut desired = Desired::default();
        for (vm, cid) in cids {
            let document: VmDesired =
                serde_json::from_value(serde_json::json!({ "vmci": { "cid": cid } })).unwrap();
            desired.vms.insert(name(vm), document);
        }
        desired
    }

    #[test]
    fn the_lowest_free_one_is_given_and_an_own_one_kept() {
        let mut vmci = VmciSpec::default();
        assign(&with(&[("a", 3), ("b", 5)]), &mut vmci);
        assert_eq!(vmci.cid, Some(Cid(4)));
        assign(&with(&[]), &mut vmci);
        assert_eq!(vmci.cid, Some(Cid(4)), "it has one");
    }

    #[test]
    fn one_that_another_vm_has_is_refused() {
        let desired = with(&[("a", 77)]);
        let error = is_free(&desired, &name("b"), Cid(77)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert!(
            error.message.contains("77 of VM `b` belongs to VM `a`") && error.hint.contains("vmci0.id"),
            "{error}"
        );
        is_free(&desired, &name("a"), Cid(77)).unwrap();
        is_free(&desired, &name("b"), Cid(78)).unwrap();
    }
}
