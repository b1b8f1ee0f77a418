//! Division of the host's memory among running VMs by reservations, shares and limits (VN-14).
//!
//! Memory that cannot be swapped out cannot be taken from a guest, and no guest is killed for its
//! limit. So a limit has an effect only on a host with swap.

use std::collections::BTreeMap;

use taut_api::enforcement::{GroupSettings, Hierarchy};
use taut_api::vm::{VmDesired, VmSpec};
use taut_api::{Bytes, Name};

use crate::facts::reservation::{memory_is_reserved, reservable_memory};
use crate::facts::{Explanation, HostSeen, Row};

/// The claim of one VM to the memory that is divided.
struct Claim<'a> {
    name: &'a Name,
    shares: u128,
    reserved: u64,
    /// Memory beyond its reservation that it can use at most.
    room: u64,
}

/// Divides the memory that can be reserved. Each VM gets its reservation; the rest is divided by
/// shares. No VM gets more than its limit or its size, and what it cannot use goes to the others.
pub(super) fn divide_memory<'a>(
    vms: &[(&'a Name, &VmDesired)],
    host: &HostSeen,
) -> BTreeMap<&'a Name, Bytes> {
    let claim = |&(name, vm): &(&'a Name, &VmDesired)| {
        let spec = &vm.vm;
        let reserved = spec.memory_reservation.of(spec.memory).0;
        let most = spec.memory_limit.of(spec.memory).unwrap_or(spec.memory).0;
        let shares = u128::from(spec.memory_shares.of_memory(spec.memory).max(1));
        Claim { name, shares, reserved, room: most.saturating_sub(reserved) }
    };
    let mut claims: Vec<Claim<'_>> = vms.iter().map(claim).collect();
    // VMs that need least for their shares come first: what they leave goes to all after them.
    claims.sort_by(|a, b| (u128::from(a.room) * b.shares).cmp(&(u128::from(b.room) * a.shares)));
    let reserved: u64 = claims.iter().map(|claim| claim.reserved).sum();
    let mut left = u128::from(reservable_memory(host.memory_total).0.saturating_sub(reserved));
    let mut shares: u128 = claims.iter().map(|claim| claim.shares).sum();
    let mut divided = BTreeMap::new();
    for claim in claims {
        let given = (left * claim.shares / shares.max(1)).min(u128::from(claim.room));
        left -= given;
        shares -= claim.shares;
        // `given` is at most `room`, which is a u64.
        divided.insert(claim.name, Bytes(claim.reserved + given as u64));
    }
    divided
}

/// Explains that a partial memory reservation is not enforced. Only cgroup v2 can protect a part of
/// a VM's memory; a full reservation is locked and needs no control group.
pub(super) fn explain_partial_reservation(host: &HostSeen, name: &Name, spec: &VmSpec) -> Explanation {
    let mut told = Explanation::default();
    if spec.memory_reservation.is_none() || memory_is_reserved(spec) {
        return told;
    }
    let cause = match host.controllers.memory {
        Hierarchy::V2 => return told,
        Hierarchy::V1 => "cgroup v1 has nothing like memory.min of cgroup v2",
        Hierarchy::None => "this host has no memory controller of cgroup v1 or v2",
    };
    told.lack(format!(
        "its memory reservation of {} of {} is counted when other VMs are admitted, but the host may \
         reclaim that memory: {cause}; hint: a full reservation is locked: `taut vm set {name} \
         --memory-reservation full`",
        spec.memory_reservation.of(spec.memory),
        spec.memory
    ));
    told
}

/// Explains the memory settings of a VM's control group.
pub(super) fn explain_memory_shares(host: &HostSeen, spec: &VmSpec, group: &GroupSettings) -> Explanation {
    let mut told = Explanation::default();
    let limit = spec.memory_limit.of(spec.memory);
    if let Some(limit) = limit.filter(|_| host.swap_total.0 == 0) {
        told.lack(format!(
            "its memory limit of {limit}: the host has no swap, and memory that cannot be swapped out \
             cannot be taken from a guest of {}",
            spec.memory
        ));
    }
    let first = format!(
        "when the host runs short, its memory above {} MiB is reclaimed first",
        group.memory_low.as_mib()
    );
    let why = "its reservation and, by shares, its part of the rest, up to its limit";
    match host.controllers.memory {
        Hierarchy::None if !spec.memory_shares.is_default() || limit.is_some() => {
            told.lack("memory shares and limits: this host has no memory controller of cgroup v1 or v2");
        }
        Hierarchy::None => {}
        Hierarchy::V1 => told.decide(
            first,
            Row::SharesAndLimits.because(format!(
                "{why}; memory.soft_limit_in_bytes of cgroup v1, whose hard limit would end QEMU"
            )),
        ),
        Hierarchy::V2 => {
            told.decide(first, Row::SharesAndLimits.because(format!("{why}; memory.low of cgroup v2")));
            if group.memory_min.0 > 0 {
                told.decide(
                    format!("{} MiB of its memory are never reclaimed", group.memory_min.as_mib()),
                    Row::MemoryReservation.because("its reservation; memory.min of cgroup v2"),
                );
            }
            if group.no_swap {
                told.decide(
                    "none of its memory is swapped out",
                    Row::LocalMemory.because("all of it is reserved; memory.swap.max of cgroup v2 is 0"),
                );
            }
            if let Some(limit) = group.memory_high {
                told.decide(
                    format!("above {limit} its memory is swapped out, and the VM waits meanwhile"),
                    Row::SharesAndLimits
                        .because("memory.high of cgroup v2; memory.max, which would end QEMU, stays unset"),
                );
            }
        }
    }
    told
}
