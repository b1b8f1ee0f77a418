//! Shares and limits of CPU and memory, reserved memory, and shares of disks, enforced by control
//! groups (VN-14).
//!
//! The kernel treats VMs like other processes while no running VM has shares, a limit or another
//! setting that needs a control group. As soon as one VM needs a group, every running VM gets one,
//! because shares have a meaning only between groups.

use std::collections::BTreeMap;

use taut_api::enforcement::{GroupSettings, Hierarchy, HostReport};
use taut_api::vm::{Power, VmDesired, VmSpec};
use taut_api::{Bytes, Name};

use super::memory_shares::{divide_memory, explain_memory_shares, explain_partial_reservation};
use crate::facts::reservation::{counted_pcpus, memory_is_reserved, reserved_memory, wants_exclusive_pcpus};
use crate::facts::{Desired, Explanation, HostSeen, MachineSize, Observed, Row};

/// The control group of each VM that is wanted on; empty while no VM needs one.
pub fn share_cpu_and_memory(desired: &Desired, observed: &Observed) -> BTreeMap<Name, GroupSettings> {
    let vms: Vec<_> = desired.vms_on().collect();
    let host = &observed.host;
    if observed.restored || !any_needs_group(&vms, host) {
        return BTreeMap::new();
    }
    let division = Division::of(&vms, host);
    vms.iter().map(|(name, vm)| ((*name).clone(), division.settings(host, name, &vm.vm))).collect()
}

/// Inputs that all control groups have in common.
struct Division<'a> {
    /// The part of the host's memory that each VM gets.
    memory: BTreeMap<&'a Name, Bytes>,
    /// Disk weights are set, because those of two VMs differ.
    disks_differ: bool,
}

impl<'a> Division<'a> {
    fn of(vms: &[(&'a Name, &VmDesired)], host: &HostSeen) -> Self {
        let disks_differ = vms.iter().any(|(_, vm)| has_disk_shares(vm));
        Self { memory: divide_memory(vms, host), disks_differ }
    }

    /// The control group of one of the VMs.
    fn settings(&self, host: &HostSeen, name: &Name, spec: &VmSpec) -> GroupSettings {
        let disk = spec.disk.as_ref().filter(|_| self.disks_differ);
        GroupSettings {
            cpu_shares: spec.cpu.shares.of_cpu(spec.vcpus),
            cpu_limit: spec.cpu.limit.thousandths(spec.vcpus, host.cpu_mhz),
            memory_min: reserved_memory(spec),
            memory_low: self.memory[name],
            // The limit is for the guest's memory; queue pairs are beside it.
            memory_high: spec
                .memory_limit
                .of(spec.memory)
                .filter(|_| host.swap_total.0 > 0)
                .map(|limit| Bytes(limit.0.saturating_add(MachineSize::of(spec).nvdimm().0))),
            no_swap: memory_is_reserved(spec),
            disk_shares: disk.map(|disk| disk.shares.of_disk()),
        }
    }
}

/// Returns whether one of these VMs needs a control group. Then all of them get one.
fn any_needs_group(vms: &[(&Name, &VmDesired)], host: &HostSeen) -> bool {
    vms.iter().any(|(_, vm)| needs_group(vm, host))
}

fn has_disk_shares(vm: &VmDesired) -> bool {
    vm.vm.disk.as_ref().is_some_and(|disk| !disk.shares.is_default())
}

/// Returns whether the VM has a setting that only a control group can enforce.
fn needs_group(vm: &VmDesired, host: &HostSeen) -> bool {
    let spec = &vm.vm;
    let shares = !spec.cpu.shares.is_default() || !spec.memory_shares.is_default() || has_disk_shares(vm);
    let limited = spec.cpu.limit.thousandths(spec.vcpus, host.cpu_mhz).is_some()
        || spec.memory_limit.of(spec.memory).is_some();
    let reserved = host.controllers.memory == Hierarchy::V2 && !spec.memory_reservation.is_none();
    // The cpuset partition of its vCPUs is inside the VM's group.
    let partition = host.controllers.cpuset == Hierarchy::V2 && wants_exclusive_pcpus(vm, host);
    shares || limited || reserved || partition
}

/// Explains the shares, limits and reservations of a VM. For a VM that is off, explains what it
/// would get if it were on.
pub(crate) fn explain_shares(
    desired: &Desired,
    observed: &Observed,
    report: &HostReport,
    groups: &BTreeMap<Name, GroupSettings>,
    name: &Name,
    vm: &VmDesired,
) -> Explanation {
    let host = &observed.host;
    let mut told = explain_partial_reservation(host, name, &vm.vm);
    if observed.restored && needs_group(vm, host) {
        told.lack(
            "shares, limits and reservations were put back by `taut host restore`: the next change of any setting \
             sets them again",
        );
        return told;
    }
    let Some((group, all)) = group_and_all_shares(desired, observed, groups, name, vm) else { return told };
    told.append(explain_cpu_shares(host, &vm.vm, &group, all));
    told.append(explain_memory_shares(host, &vm.vm, &group));
    told.append(explain_disk_shares(host, report, name, &vm.vm, &group));
    let enforced = report.vms.get(name);
    let runs = observed.process(name).is_some();
    if runs && !enforced.is_some_and(|vm| vm.grouped) && told.missing.is_empty() {
        told.lack("its process has not been put into its control group yet");
    }
    told.missing.extend(enforced.and_then(|vm| vm.group_problem.clone()));
    told
}

/// The control group of a VM, and the CPU shares of all running VMs. For a VM that is off, both are
/// what they would be if it were on.
fn group_and_all_shares(
    desired: &Desired,
    observed: &Observed,
    groups: &BTreeMap<Name, GroupSettings>,
    name: &Name,
    vm: &VmDesired,
) -> Option<(GroupSettings, u64)> {
    if let Some(group) = groups.get(name) {
        let all = groups.values().map(|group| group.cpu_shares).sum();
        return Some((group.clone(), all));
    }
    let vms: Vec<_> = desired.vms_on().chain([(name, vm)]).collect();
    if vm.power == Power::On || observed.restored || !any_needs_group(&vms, &observed.host) {
        return None;
    }
    let all = vms.iter().map(|(_, vm)| vm.vm.cpu.shares.of_cpu(vm.vm.vcpus)).sum();
    Some((Division::of(&vms, &observed.host).settings(&observed.host, name, &vm.vm), all))
}

/// Explains CPU shares, of `all` shares of the running VMs, and the CPU limit.
fn explain_cpu_shares(host: &HostSeen, spec: &VmSpec, group: &GroupSettings, all: u64) -> Explanation {
    let mut told = Explanation::default();
    let (weight, quota) = match host.controllers.cpu {
        Hierarchy::None => {
            if !spec.cpu.shares.is_default() || group.cpu_limit.is_some() {
                told.lack("CPU shares and limits: this host has no cpu controller of cgroup v1 or v2");
            }
            return told;
        }
        Hierarchy::V1 => ("cpu.shares of cgroup v1", "cpu.cfs_quota_us of cgroup v1"),
        Hierarchy::V2 => ("cpu.weight of cgroup v2", "cpu.max of cgroup v2"),
    };
    told.decide(
        format!("it has {} of all running VMs' {all} CPU shares ({})", group.cpu_shares, spec.cpu.shares),
        Row::SharesAndLimits.because(format!("they count while vCPUs outnumber free pCPUs; {weight}")),
    );
    if let Some(limit) = group.cpu_limit {
        told.decide(
            format!("it gets {} at most ({})", counted_pcpus(limit), spec.cpu.limit),
            Row::SharesAndLimits
                .because(format!("for all of its threads together, even while pCPUs are idle; {quota}")),
        );
    }
    told
}

fn explain_disk_shares(
    host: &HostSeen,
    report: &HostReport,
    name: &Name,
    spec: &VmSpec,
    group: &GroupSettings,
) -> Explanation {
    let mut told = Explanation::default();
    let (Some(shares), Some(disk)) = (group.disk_shares, &spec.disk) else { return told };
    let file = match host.controllers.disk {
        Hierarchy::None => {
            told.lack(
                "its disk shares: this host has no blkio controller of cgroup v1 and no io controller \
                 of cgroup v2",
            );
            return told;
        }
        Hierarchy::V1 => "blkio.bfq.weight of cgroup v1",
        Hierarchy::V2 => "io.weight and io.bfq.weight of cgroup v2",
    };
    if let Some(why) = report.vms.get(name).and_then(|vm| vm.weightless.as_ref()) {
        told.lack(why);
        return told;
    }
    told.decide(
        format!("its disk has {shares} shares ({}), where an ordinary disk has 1000", disk.shares),
        Row::SharesAndLimits
            .because(format!("they count while a device is busy, among the VMs that use it; {file}")),
    );
    told
}

#[cfg(test)]
mod tests;
