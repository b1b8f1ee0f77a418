//! Who gets how much CPU and memory when there is too little, and at most (SPEC VN-14).
//!
//! As long as no running VM has shares, a limit or anything else of the kind, the kernel treats their processes like any others. As
//! soon as one has, every running VM has a control group of its own, so that shares are compared with shares. What a limit of memory
//! can mean is the host's matter: memory that cannot be swapped out cannot be taken from a guest, and none is killed for a limit.

use std::collections::BTreeMap;

use taut_api::latency::Decision;
use taut_api::shares::ResourceStatus;
use taut_api::vm::{Power, VmDesired, VmSpec};
use taut_api::{ApiError, Bytes, Name};

use crate::admission::invalid;
use crate::latency::{memory_is_reserved, pcpus, reservable_memory, thousandths, wants_exclusive};
use crate::observed::Hierarchy;
use crate::{Decided, Desired, Observed, affinity, numa};

/// What a running VM is to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entitlement {
    /// How much it counts beside others when there is too little CPU: 1000 for an ordinary vCPU.
    pub cpu_shares: u64,
    /// Most CPU, in thousandths of a pCPU.
    pub cpu_limit: Option<u64>,
    /// Its memory.
    pub memory: MemoryEntitlement,
    /// How much its disk counts beside others' while their device is busy: 1000 for an ordinary one. Nothing while nobody's does
    /// otherwise, or without a disk.
    pub disk_shares: Option<u64>,
}

/// What a running VM is to get of the host's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntitlement {
    /// Never to be taken from it.
    pub reserved: Bytes,
    /// To be taken from it only after others were down to theirs.
    pub entitled: Bytes,
    /// The most that it is to keep, where the host can swap out the rest.
    pub limit: Option<Bytes>,
    /// None of it is to be swapped out.
    pub no_swap: bool,
}

/// What each running VM is to get; nothing while nobody asks for any of it.
pub fn rule(desired: &Desired, observed: &Observed) -> BTreeMap<Name, Entitlement> {
    let vms: Vec<_> = on(desired).collect();
    if observed.restored || !anybody_asks(&vms, observed) {
        return BTreeMap::new();
    }
    let (memory, disks) = (entitled(&vms, observed), disks_differ(&vms));
    let of = |(name, vm): &(&Name, &VmDesired)| {
        ((*name).clone(), entitlement(&vm.vm, observed, memory[name], disks))
    };
    vms.iter().map(of).collect()
}

/// What a VM is to get that is entitled to so much memory; `disks` says whether those of VMs count differently.
fn entitlement(spec: &VmSpec, observed: &Observed, memory: Bytes, disks: bool) -> Entitlement {
    Entitlement {
        cpu_shares: spec.cpu.shares.of_cpu(spec.vcpus),
        cpu_limit: spec.cpu.limit.thousandths(spec.vcpus, observed.cpu_mhz),
        memory: MemoryEntitlement {
            reserved: spec.memory_reservation.of(spec.memory),
            entitled: memory,
            limit: spec.memory_limit.of(spec.memory).filter(|_| observed.swap_total.0 > 0),
            no_swap: memory_is_reserved(spec),
        },
        disk_shares: spec.disk.as_ref().filter(|_| disks).map(|disk| disk.shares.of_disk()),
    }
}

/// Is a limit at least what is reserved? `spec` is already valid in itself.
///
/// # Errors
/// With both numbers when it is not.
pub fn check(observed: &Observed, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    let hint = "raise the limit, or reserve less";
    let reserved = thousandths(spec, observed);
    if let Some(limit) = spec.cpu.limit.thousandths(spec.vcpus, observed.cpu_mhz)
        && limit < reserved
    {
        let (limit, reserved) = (pcpus(limit), pcpus(reserved));
        return Err(invalid(
            format!("VM `{name}` reserves {reserved} pCPUs and is limited to {limit} of them"),
            hint,
        ));
    }
    let reserved = spec.memory_reservation.of(spec.memory);
    match spec.memory_limit.of(spec.memory) {
        Some(limit) if limit < reserved => Err(invalid(
            format!("VM `{name}` reserves {reserved} of memory and is limited to {limit} of it"),
            hint,
        )),
        _ => Ok(()),
    }
}

/// Is there one among these VMs whose control group is needed? Then all have one.
fn anybody_asks(vms: &[(&Name, &VmDesired)], observed: &Observed) -> bool {
    vms.iter().any(|(_, vm)| asks(vm, observed))
}

/// Does the disk of one of these VMs count more or less than the others'?
fn disks_differ(vms: &[(&Name, &VmDesired)]) -> bool {
    vms.iter().any(|(_, vm)| has_disk_shares(vm))
}

fn has_disk_shares(vm: &VmDesired) -> bool {
    vm.vm.disk.as_ref().is_some_and(|disk| !disk.shares.is_default())
}

/// Has the VM something that its control group is needed for?
fn asks(vm: &VmDesired, observed: &Observed) -> bool {
    let spec = &vm.vm;
    let shares = !spec.cpu.shares.is_default() || !spec.memory_shares.is_default() || has_disk_shares(vm);
    let limited = spec.cpu.limit.thousandths(spec.vcpus, observed.cpu_mhz).is_some()
        || spec.memory_limit.of(spec.memory).is_some();
    let kept = observed.controllers.memory == Hierarchy::V2 && !spec.memory_reservation.is_none();
    // Its vCPUs' partition lies in it.
    let partition = observed.controllers.cpuset == Hierarchy::V2 && wants_exclusive(vm, observed);
    shares || limited || kept || partition
}

/// Reservations, and what can be reserved beyond them divided by shares: nobody gets more than it can have, and what one cannot have
/// goes to the others.
fn entitled<'a>(vms: &[(&'a Name, &VmDesired)], observed: &Observed) -> BTreeMap<&'a Name, Bytes> {
    struct Claim<'a> {
        name: &'a Name,
        shares: u128,
        reserved: u64,
        room: u64,
    }
    let claim = |&(name, vm): &(&'a Name, &VmDesired)| {
        let spec = &vm.vm;
        let reserved = spec.memory_reservation.of(spec.memory).0;
        let most = spec.memory_limit.of(spec.memory).unwrap_or(spec.memory).0;
        let shares = u128::from(spec.memory_shares.of_memory(spec.memory).max(1));
        Claim { name, shares, reserved, room: most.saturating_sub(reserved) }
    };
    let mut claims: Vec<Claim<'_>> = vms.iter().map(claim).collect();
    // Whoever is content with the least for its shares comes first: what it leaves is there for all after it.
    claims.sort_by(|a, b| (u128::from(a.room) * b.shares).cmp(&(u128::from(b.room) * a.shares)));
    let reserved: u64 = claims.iter().map(|claim| claim.reserved).sum();
    let mut left = u128::from(reservable_memory(observed.memory_total).0.saturating_sub(reserved));
    let mut shares: u128 = claims.iter().map(|claim| claim.shares).sum();
    let mut entitled = BTreeMap::new();
    for claim in claims {
        let given = (left * claim.shares / shares.max(1)).min(u128::from(claim.room));
        left -= given;
        shares -= claim.shares;
        // No more than `room`.
        entitled.insert(claim.name, Bytes(claim.reserved + given as u64));
    }
    entitled
}

/// What was decided for a VM, and why; nothing where nothing was.
pub fn explain(
    desired: &Desired,
    observed: &Observed,
    decided: &Decided,
    name: &Name,
    vm: &VmDesired,
) -> Option<ResourceStatus> {
    let mut status = ResourceStatus::default();
    reservation(observed, name, vm, &mut status);
    groups(desired, observed, decided, name, vm, &mut status);
    affinity::explain(observed, decided, name, vm, &mut status);
    let process = observed.vms.get(name).and_then(|seen| seen.process.as_ref());
    numa::explain(observed, name, &vm.vm, process, decided.placement.granted.get(name), &mut status);
    (status != ResourceStatus::default()).then_some(status)
}

/// A part of the memory that is reserved is kept by cgroup v2 alone; all of it is locked, and needs no group.
fn reservation(observed: &Observed, name: &Name, vm: &VmDesired, status: &mut ResourceStatus) {
    let spec = &vm.vm;
    if spec.memory_reservation.is_none() || memory_is_reserved(spec) {
        return;
    }
    let has = match observed.controllers.memory {
        Hierarchy::V2 => return,
        Hierarchy::V1 => "cgroup v1 has nothing like memory.min of cgroup v2",
        Hierarchy::None => "this host has no memory controller of cgroup v1 or v2",
    };
    status.missing.push(format!(
        "its memory reservation of {} of {} is counted when others are admitted, and not kept from being taken: {has}; hint: all of it can be \
         locked, `taut vm set {name} --memory-reservation full`",
        spec.memory_reservation.of(spec.memory),
        spec.memory
    ));
}

/// What its control group has.
fn groups(
    desired: &Desired,
    observed: &Observed,
    decided: &Decided,
    name: &Name,
    vm: &VmDesired,
    status: &mut ResourceStatus,
) {
    if observed.restored && asks(vm, observed) {
        status.missing.push(
            "shares and limits were put back by `taut host restore`: they are set again with the next change of any setting"
                .to_owned(),
        );
        return;
    }
    let mut all: u64 = decided.entitled.values().map(|entitlement| entitlement.cpu_shares).sum();
    let would_be;
    let own = match decided.entitled.get(name) {
        Some(own) => own,
        None if vm.power == Power::On || observed.restored => return,
        // What it would get if it were on.
        None => {
            let mut vms: Vec<_> = on(desired).collect();
            vms.push((name, vm));
            if !anybody_asks(&vms, observed) {
                return;
            }
            all = vms.iter().map(|(_, vm)| vm.vm.cpu.shares.of_cpu(vm.vm.vcpus)).sum();
            would_be = entitlement(&vm.vm, observed, entitled(&vms, observed)[name], disks_differ(&vms));
            &would_be
        }
    };
    cpu(observed, vm, own, all, status);
    memory(observed, vm, own, status);
    disk(observed, name, vm, own, status);
    let runs = observed.vms.get(name).is_some_and(|seen| seen.process.is_some());
    if runs && !observed.enforced.contains(name) && status.missing.is_empty() {
        status.missing.push("its process has not been put into its control group yet".to_owned());
    }
    status.missing.extend(observed.group_problems.get(name).cloned());
}

fn cpu(observed: &Observed, vm: &VmDesired, own: &Entitlement, all: u64, status: &mut ResourceStatus) {
    let spec = &vm.vm;
    let (weight, quota) = match observed.controllers.cpu {
        Hierarchy::None => {
            if !spec.cpu.shares.is_default() || own.cpu_limit.is_some() {
                status.missing.push(
                    "CPU shares and limits: this host has no cpu controller of cgroup v1 or v2".to_owned(),
                );
            }
            return;
        }
        Hierarchy::V1 => ("cpu.shares of cgroup v1", "cpu.cfs_quota_us of cgroup v1"),
        Hierarchy::V2 => ("cpu.weight of cgroup v2", "cpu.max of cgroup v2"),
    };
    decide(
        status,
        format!("it has {} of all running VMs' {all} CPU shares ({})", own.cpu_shares, spec.cpu.shares),
        format!("VN-14: they count where vCPUs want more than there is; {weight}"),
    );
    if let Some(limit) = own.cpu_limit {
        decide(
            status,
            format!("it gets {} pCPUs at most ({})", pcpus(limit), spec.cpu.limit),
            format!("VN-14: all of its threads together, also while others are idle; {quota}"),
        );
    }
}

fn memory(observed: &Observed, vm: &VmDesired, own: &Entitlement, status: &mut ResourceStatus) {
    let spec = &vm.vm;
    let limit = spec.memory_limit.of(spec.memory);
    let MemoryEntitlement { reserved, entitled, no_swap, .. } = &own.memory;
    if let Some(limit) = limit.filter(|_| observed.swap_total.0 == 0) {
        status.missing.push(format!(
            "its memory limit of {limit}: the host has no swap, and memory that cannot be swapped out cannot be taken from a guest of {}",
            spec.memory
        ));
    }
    let asked = !spec.memory_shares.is_default() || limit.is_some();
    match observed.controllers.memory {
        Hierarchy::None if asked => {
            status.missing.push(
                "memory shares and limits: this host has no memory controller of cgroup v1 or v2".to_owned(),
            );
        }
        Hierarchy::None => {}
        Hierarchy::V1 => {
            decide(
                status,
                format!("when the host is short, what it has above {} MiB is taken first", entitled.as_mib()),
                "VN-14: its reservation and its shares of the rest, no more than its limit; memory.soft_limit_in_bytes of cgroup v1, whose \
                 hard limit would end QEMU"
                    .to_owned(),
            );
        }
        Hierarchy::V2 => {
            decide(
                status,
                format!("when the host is short, what it has above {} MiB is taken first", entitled.as_mib()),
                "VN-14: its reservation and its shares of the rest, no more than its limit; memory.low of cgroup v2".to_owned(),
            );
            if reserved.0 > 0 {
                decide(
                    status,
                    format!("{} MiB are never taken from it", reserved.as_mib()),
                    "LS-2: its reservation; memory.min of cgroup v2".to_owned(),
                );
            }
            if *no_swap {
                decide(
                    status,
                    "none of it is swapped out".to_owned(),
                    "LS-5: memory.swap.max of cgroup v2 is 0".to_owned(),
                );
            }
            if let Some(limit) = own.memory.limit {
                decide(
                    status,
                    format!("above {limit} its memory is swapped out, and it waits for that"),
                    "VN-14: memory.high of cgroup v2; memory.max, which would end QEMU, stays unset"
                        .to_owned(),
                );
            }
        }
    }
}

fn disk(observed: &Observed, name: &Name, vm: &VmDesired, own: &Entitlement, status: &mut ResourceStatus) {
    let (Some(shares), Some(disk)) = (own.disk_shares, &vm.vm.disk) else { return };
    let file = match observed.controllers.disk {
        Hierarchy::None => {
            status.missing.push(
                "its disk shares: this host has no blkio controller of cgroup v1 and no io controller of cgroup v2".to_owned(),
            );
            return;
        }
        Hierarchy::V1 => "blkio.bfq.weight of cgroup v1",
        Hierarchy::V2 => "io.weight and io.bfq.weight of cgroup v2",
    };
    if let Some(why) = observed.weightless.get(name) {
        status.missing.push(why.clone());
        return;
    }
    decide(
        status,
        format!("its disk has {shares} shares ({}), where an ordinary one has 1000", disk.shares),
        format!("VN-14: they count while a device is busy, among the VMs that use it; {file}"),
    );
}

fn decide(status: &mut ResourceStatus, decision: String, rule: String) {
    status.decisions.push(Decision { decision, rule, restart: false });
}

/// VMs that are wanted on.
fn on(desired: &Desired) -> impl Iterator<Item = (&Name, &VmDesired)> {
    desired.vms.iter().filter(|(_, vm)| vm.power == Power::On)
}

#[cfg(test)]
mod tests;
