//! `PATCH /v1/vms/{name}`: changes settings of one VM, all or none.

use axum::Json;
use axum::extract::{ConnectInfo, State};
use taut_api::enforcement::HostReport;
use taut_api::error::ErrorKind;
use taut_api::patch::{
    LatencyPatch, MachinePatch, NicPatch, PlacementPatch, ResourcePatch, Switch, VmPatch, VmciPatch,
    is_default,
};
use taut_api::route::Vm;
use taut_api::vm::{Disk, NicSpec, VmDesired, VmKind, VmSpec, VmStatus};
use taut_api::vmci::{Cid, GroupChoice, VmciSpec};
use taut_api::word::counted;
use taut_api::{ApiError, Document, Name, path};
use taut_plan::admission::documents::admit_vm;
use taut_plan::admission::network_io::admit_uplinks_of_vm;
use taut_plan::admission::placement::admit_placement;
use taut_plan::admission::reservations::admit_reservations;
use taut_plan::network::cid::assign_cid;
use taut_plan::{Desired, Observed};
use taut_vm::definition;

use super::Shared;
use super::body::{Body, Condition, Failure, Named};
use super::vms::{answer, owner, refuse_remote, write_vm};
use crate::access::caller::Caller;
use crate::access::ids::check_membership;
use crate::interface;

/// Changes settings of a VM, also while it runs: all that the request names, or none. The answer
/// precedes the change of the host: its status says what is decided, what the host cannot enforce
/// as far as the last report tells, and what needs a restart. Answers say what is in force once
/// `reconciled` of `/v1/daemon` has reached the revision of this one. With `If-Match: "REVISION"`
/// only changes that revision.
#[utoipa::path(patch, path = path::VM.pattern(), tag = "VMs", request_body = VmPatch,
    params(("name" = Name, Path, description = "VM")),
    responses((status = 200, body = Document<VmDesired, VmStatus>), (status = 400, body = ApiError),
        (status = 404, body = ApiError), (status = 409, body = ApiError), (status = 412, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn patch_vm(
    State(app): State<Shared>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Named(name): Named,
    condition: Condition,
    Body(patch): Body<VmPatch>,
) -> Result<Json<Vm>, Failure> {
    if let Some(GroupChoice(Some(group))) = patch.vmci.group.clone() {
        refuse_remote(&caller, "a group of the host")
            .map_err(|error| Failure::from(error).about(Some(name.clone())))?;
        let rights = owner(&app, &caller);
        // Looking a group up may take long.
        let may = tokio::task::spawn_blocking(move || check_membership(&rights, &group)).await;
        may.map_err(|error| Failure::internal("the look-up of the group was interrupted", &error))?
            .map_err(|error| Failure::from(error).about(Some(name.clone())))?;
    }
    let (observed, report) = app.board.lock().for_rules();
    let change = move |desired: &Desired, name: &Name, vm: &mut VmDesired| {
        apply(&patch, desired, name, &mut vm.vm)?;
        admit(&patch, desired, &observed, &report, name, vm)
    };
    let state = write_vm(&app, &name, condition, change).await?;
    answer(&app, &state, &name)
}

/// Checks the changed document as a whole.
fn admit(
    patch: &VmPatch,
    desired: &Desired,
    observed: &Observed,
    report: &HostReport,
    name: &Name,
    vm: &VmDesired,
) -> Result<(), ApiError> {
    definition::check_changed(&vm.vm)?;
    // A VM without room for its buffers, which an earlier version has admitted, stays changeable.
    if desired.vms.get(name).is_none_or(|now| definition::check_buffers(&now.vm).is_ok()) {
        definition::check_buffers(&vm.vm)?;
    }
    admit_vm(desired, name, &vm.vm)?;
    if !is_default(&patch.placement) {
        admit_placement(&observed.host, name, &vm.vm.placement)?;
    }
    if patch.nics.values().any(|nic| nic.uplink_allocation.is_some() || nic.portgroup.is_some()) {
        admit_uplinks_of_vm(desired, name, vm, &interface::speed)?;
    }
    // Other settings must stay changeable on a host that has shrunk below what was promised.
    if patch.needs_admission() { admit_reservations(desired, observed, report, name, vm) } else { Ok(()) }
}

fn apply(patch: &VmPatch, desired: &Desired, name: &Name, spec: &mut VmSpec) -> Result<(), ApiError> {
    for (index, change) in &patch.nics {
        change_nic(change, nic(name, spec, *index)?);
    }
    change_latency(patch.latency, spec);
    change_resources(patch.resources, name, spec)?;
    change_placement(&patch.placement, spec);
    change_machine(patch.machine, name, spec)?;
    if patch.vmci != VmciPatch::default() {
        spec.vmci = change_vmci(&patch.vmci, desired, name, spec.kind, spec.vmci.take())?;
    }
    Ok(())
}

fn nic<'a>(name: &Name, spec: &'a mut VmSpec, index: usize) -> Result<&'a mut NicSpec, ApiError> {
    let count = spec.nics.len();
    spec.nics.get_mut(index).ok_or_else(|| {
        ApiError::new(
            ErrorKind::NotFound,
            format!("VM `{name}` has {} and no card {index}", counted(count, "network card")),
            format!("cards are counted from 0; `taut vm show {name}` lists them"),
        )
    })
}

fn change_nic(change: &NicPatch, nic: &mut NicSpec) {
    let NicPatch { portgroup, link, coalescing, lro, to_switch, to_guest, uplink_allocation } = change;
    if let Some(portgroup) = portgroup {
        nic.portgroup.clone_from(portgroup);
    }
    nic.link = link.unwrap_or(nic.link);
    nic.coalescing = coalescing.unwrap_or(nic.coalescing);
    nic.lro = lro.or(nic.lro);
    nic.shaping.to_switch = to_switch.unwrap_or(nic.shaping.to_switch);
    nic.shaping.to_guest = to_guest.unwrap_or(nic.shaping.to_guest);
    nic.uplink_allocation = uplink_allocation.unwrap_or(nic.uplink_allocation);
}

fn change_latency(change: LatencyPatch, spec: &mut VmSpec) {
    let LatencyPatch { latency_sensitivity, cpu_reservation, memory_reservation } = change;
    spec.latency_sensitivity = latency_sensitivity.unwrap_or(spec.latency_sensitivity);
    spec.cpu.reservation = cpu_reservation.unwrap_or(spec.cpu.reservation);
    spec.memory_reservation = memory_reservation.unwrap_or(spec.memory_reservation);
}

fn change_resources(change: ResourcePatch, name: &Name, spec: &mut VmSpec) -> Result<(), ApiError> {
    let ResourcePatch { cpu_shares, cpu_limit, memory_shares, memory_limit, disk_shares } = change;
    spec.cpu.shares = cpu_shares.unwrap_or(spec.cpu.shares);
    spec.cpu.limit = cpu_limit.unwrap_or(spec.cpu.limit);
    spec.memory_shares = memory_shares.unwrap_or(spec.memory_shares);
    spec.memory_limit = memory_limit.unwrap_or(spec.memory_limit);
    if let Some(shares) = disk_shares {
        disk(name, spec, "disk shares")?.shares = shares;
    }
    Ok(())
}

fn change_placement(change: &PlacementPatch, spec: &mut VmSpec) {
    let PlacementPatch { nodes, cpus, vcpus_per_node } = change;
    let placement = &mut spec.placement;
    if let Some(nodes) = nodes {
        placement.nodes = nodes.clone();
    }
    if let Some(cpus) = cpus {
        placement.cpus = cpus.clone();
    }
    if let Some(most) = *vcpus_per_node {
        placement.vcpus_per_node = Some(most).filter(|most| *most > 0);
    }
}

fn change_machine(change: MachinePatch, name: &Name, spec: &mut VmSpec) -> Result<(), ApiError> {
    let MachinePatch { vcpus, memory, accelerator, halt, disk_bandwidth, disk_iops } = change;
    spec.vcpus = vcpus.unwrap_or(spec.vcpus);
    spec.memory = memory.unwrap_or(spec.memory);
    spec.accelerator = accelerator.unwrap_or(spec.accelerator);
    spec.halt.desched = halt.desched.map_or(spec.halt.desched, Switch::value);
    spec.halt.spin = halt.spin.map_or(spec.halt.spin, Switch::value);
    if let Some(us) = halt.min_spin_us {
        spec.halt.min_spin_us = Some(us).filter(|us| *us > 0);
    }
    if let Some(bandwidth) = disk_bandwidth {
        disk(name, spec, "disk limits")?.limits.bandwidth =
            Some(bandwidth).filter(|bandwidth| bandwidth.0 > 0);
    }
    if let Some(iops) = disk_iops {
        disk(name, spec, "disk limits")?.limits.iops = Some(iops).filter(|iops| *iops > 0);
    }
    Ok(())
}

fn disk<'a>(name: &Name, spec: &'a mut VmSpec, setting: &str) -> Result<&'a mut Disk, ApiError> {
    spec.disk.as_mut().ok_or_else(|| {
        ApiError::new(
            ErrorKind::Invalid,
            format!("VM `{name}` has no disk"),
            format!("{setting} apply only to a VM with a [disk] table in its file"),
        )
    })
}

/// Returns the VMCI device after the change.
fn change_vmci(
    change: &VmciPatch,
    desired: &Desired,
    name: &Name,
    kind: VmKind,
    before: Option<VmciSpec>,
) -> Result<Option<VmciSpec>, ApiError> {
    let VmciPatch {
        present,
        cid,
        domains,
        unrestricted,
        connections,
        half_open,
        group,
        queue_pairs,
        queue_pairs_room,
    } = change;
    if *present == Some(false) {
        return if *change == (VmciPatch { present: Some(false), ..VmciPatch::default() }) {
            Ok(None)
        } else {
            Err(ApiError::new(
                ErrorKind::Invalid,
                format!("the request removes the VMCI device of VM `{name}` and changes its settings"),
                "send one of the two requests at a time",
            ))
        };
    }
    let Some(mut vmci) = before.or_else(|| (*present == Some(true)).then(VmciSpec::default)) else {
        return Err(ApiError::new(
            ErrorKind::Conflict,
            format!("VM `{name}` has no VMCI device"),
            format!("add one: taut vm set {name} --vmci on"),
        ));
    };
    if let Some(cid) = *cid {
        vmci.cid = Some(Cid(cid)).filter(|cid| cid.0 > 0);
    }
    if let Some(domains) = domains {
        vmci.domains.clone_from(&domains.0);
    }
    if let Some(group) = group {
        vmci.group.clone_from(&group.0);
    }
    vmci.unrestricted = unrestricted.unwrap_or(vmci.unrestricted);
    for (given, place) in [(connections, &mut vmci.connections), (half_open, &mut vmci.half_open)] {
        if let Some(most) = *given {
            *place = Some(most).filter(|most| *most > 0);
        }
    }
    for (given, place) in
        [(queue_pairs, &mut vmci.queue_pairs), (queue_pairs_room, &mut vmci.queue_pairs_room)]
    {
        if let Some(size) = *given {
            *place = Some(size).filter(|size| size.0 > 0);
        }
    }
    definition::vmci::check(kind, &vmci)?;
    assign_cid(desired, &mut vmci);
    Ok(Some(vmci))
}
