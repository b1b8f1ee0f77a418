//! `/v1/vms/{name}/machine`.

use axum::Json;
use axum::extract::State;
use taut_api::error::ErrorKind;
use taut_api::machine::ChangeMachine;
use taut_api::route::Vm;
use taut_api::vm::{VmDesired, VmSpec, VmStatus};
use taut_api::{ApiError, Document, Name};
use taut_vm::definition;

use super::body::{Body, Failure, Named};
use super::{Shared, vms};

/// Changes who runs a VM's code, what its idle vCPUs do, and the limits of its disk, also while it runs.
#[utoipa::path(patch, path = "/v1/vms/{name}/machine", tag = "VMs", request_body = ChangeMachine,
    params(("name" = Name, Path, description = "VM")),
    responses((status = 200, body = Document<VmDesired, VmStatus>), (status = 400, body = ApiError),
        (status = 404, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn change_machine(
    State(app): State<Shared>,
    Named(name): Named,
    Body(change): Body<ChangeMachine>,
) -> Result<Json<Vm>, Failure> {
    vms::change_vm(&app, name, move |_, name, vm| apply(&change, name, &mut vm.vm)).await
}

fn apply(change: &ChangeMachine, name: &Name, spec: &mut VmSpec) -> Result<(), ApiError> {
    let ChangeMachine { accelerator, halt, disk_bandwidth, disk_iops } = change;
    spec.accelerator = accelerator.unwrap_or(spec.accelerator);
    spec.halt = halt.unwrap_or(spec.halt);
    if disk_bandwidth.is_some() || disk_iops.is_some() {
        let disk = spec.disk.as_mut().ok_or_else(|| {
            ApiError::new(
                ErrorKind::Invalid,
                format!("VM `{name}` has no disk that could be limited"),
                "only a VM with a [disk] has limits of it",
            )
        })?;
        if let Some(bandwidth) = disk_bandwidth {
            disk.limits.bandwidth = Some(*bandwidth).filter(|bandwidth| bandwidth.0 > 0);
        }
        if let Some(iops) = disk_iops {
            disk.limits.iops = Some(*iops).filter(|iops| *iops > 0);
        }
    }
    definition::check_machine(spec)
}
