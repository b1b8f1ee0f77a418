//! `/v1/vms/{name}/resources`.

use axum::Json;
use axum::extract::State;
use taut_api::error::ErrorKind;
use taut_api::route::{ChangeResources, Vm};
use taut_api::vm::{VmDesired, VmStatus};
use taut_api::{ApiError, Document, Name};
use taut_plan::admission::reservations::admit_reservations;

use super::body::{Body, Failure, Named};
use super::{Shared, vms};

/// Changes a VM's shares and limits of CPU, memory and disk, and where it is to be, also while it runs. Its status says what is enforced, and what this host
/// cannot enforce.
#[utoipa::path(patch, path = "/v1/vms/{name}/resources", tag = "VMs", request_body = ChangeResources,
    params(("name" = Name, Path, description = "VM")),
    responses((status = 200, body = Document<VmDesired, VmStatus>), (status = 400, body = ApiError),
        (status = 404, body = ApiError), (status = 409, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn change_resources(
    State(app): State<Shared>,
    Named(name): Named,
    Body(change): Body<ChangeResources>,
) -> Result<Json<Vm>, Failure> {
    let (observed, report) = app.board.lock().for_rules();
    vms::change_vm(&app, name, move |desired, name, vm| {
        let ChangeResources {
            cpu_shares,
            cpu_limit,
            memory_shares,
            memory_limit,
            disk_shares,
            nodes,
            cpus,
            vcpus_per_node,
        } = change;
        let spec = &mut vm.vm;
        spec.cpu.shares = cpu_shares.unwrap_or(spec.cpu.shares);
        spec.cpu.limit = cpu_limit.unwrap_or(spec.cpu.limit);
        spec.memory_shares = memory_shares.unwrap_or(spec.memory_shares);
        spec.memory_limit = memory_limit.unwrap_or(spec.memory_limit);
        if let Some(shares) = disk_shares {
            let disk = spec.disk.as_mut().ok_or_else(|| {
                ApiError::new(
                    ErrorKind::Invalid,
                    format!("VM `{name}` has no disk that could have shares"),
                    "only a VM with a [disk] has shares of it",
                )
            })?;
            disk.shares = shares;
        }
        let placement = &mut spec.placement;
        placement.nodes = nodes.unwrap_or_else(|| placement.nodes.clone());
        placement.cpus = cpus.unwrap_or_else(|| placement.cpus.clone());
        placement.vcpus_per_node =
            vcpus_per_node.map_or(placement.vcpus_per_node, |most| Some(most).filter(|most| *most > 0));
        admit_reservations(desired, &observed, &report, name, vm)
    })
    .await
}
