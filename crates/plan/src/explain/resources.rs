//! The status of a VM's share of the host, and of its virtual machine.

use taut_api::Name;
use taut_api::enforcement::HostReport;
use taut_api::shares::ResourceStatus;
use taut_api::vm::{VmDesired, VmKind};

use crate::facts::{Desired, Explanation, Observed};
use crate::placement::affinity::explain_affinity;
use crate::placement::numa::{explain_place, place_memory};
use crate::resources::Decided;
use crate::resources::accelerator::explain_accelerator;
use crate::resources::added_queue_pairs::explain_queue_pairs;
use crate::resources::disk_limits::explain_disk_limits;
use crate::resources::halt::explain_halt;
use crate::resources::migration::{explain_destination, explain_progress, leaves_start};
use crate::resources::next_start::{explain_leftovers, explain_mtus, explain_size};
use crate::resources::passthrough::explain_devices;
use crate::resources::shares::explain_shares;

/// Explains a VM's shares, limits and affinity, and the place of its memory. Returns `None` when
/// nothing was decided.
pub fn explain_resources(
    desired: &Desired,
    observed: &Observed,
    report: &HostReport,
    decided: &Decided,
    name: &Name,
    vm: &VmDesired,
) -> Option<ResourceStatus> {
    let mut told = explain_shares(desired, observed, report, &decided.groups, name, vm);
    told.append(explain_affinity(observed, report, &decided.placement, name, vm));
    if vm.vm.kind == VmKind::Qemu {
        told.append(explain_memory(observed, report, decided, name, vm));
    }
    told.into_status()
}

/// Explains where the memory of a running VM is and moves to, or where that of a VM that is off
/// would be put.
fn explain_memory(
    observed: &Observed,
    report: &HostReport,
    decided: &Decided,
    name: &Name,
    vm: &VmDesired,
) -> Explanation {
    let (spec, host) = (&vm.vm, &observed.host);
    let next = place_memory(host, spec, decided.placement.granted.get(name), &[]);
    let process = observed.process(name);
    let place = process.map_or(&next, |process| &process.machine.memory);
    let moved = process.and_then(|_| report.vms.get(name)?.memory.as_ref());
    let leaves = leaves_start(place, moved);
    let mut told = explain_place(host, spec, place, leaves);
    if let Some(process) = process {
        if !leaves {
            told.append(explain_destination(observed, process, &next));
        }
        if let Some(moved) = moved {
            told.append(explain_progress(place, moved, process.locked));
        }
    }
    let nodes = &spec.placement.nodes;
    if !nodes.is_any() && nodes.0.is_subset(&host.bare_nodes) {
        told.lack(format!("nodes {nodes} have no memory: the VM's memory comes from other nodes"));
    }
    if !nodes.is_any() && host.nodes().len() < 2 {
        told.lack(format!("nodes {nodes}: this host has one NUMA node"));
    }
    told
}

/// Explains a VM's size, memory for queue pairs, accelerator, halting, disk limits, PCI devices and
/// MTUs, and what it keeps until its next start. Returns `None` for a VM that asks for nothing.
pub fn explain_machine(
    desired: &Desired,
    observed: &Observed,
    report: &HostReport,
    name: &Name,
    vm: &VmDesired,
) -> Option<ResourceStatus> {
    let (spec, process) = (&vm.vm, observed.process(name));
    let mut told = explain_size(spec, process);
    told.append(explain_queue_pairs(spec, process));
    told.append(explain_accelerator(spec, process));
    told.append(explain_halt(report, name, spec, process));
    told.append(explain_disk_limits(spec, process));
    told.append(explain_devices(spec));
    told.append(explain_mtus(desired, name, spec, process));
    told.append(explain_leftovers(&observed.host, vm, process));
    told.into_status()
}
