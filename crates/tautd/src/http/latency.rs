//! `/v1/vms/{name}/latency`.

use axum::Json;
use axum::extract::State;
use taut_api::route::{ChangeLatency, Vm};
use taut_api::vm::{VmDesired, VmStatus};
use taut_api::{ApiError, Document, Name};
use taut_plan::admission::reservations::admit_reservations;
use taut_vm::definition;

use super::body::{Body, Failure, Named};
use super::{Shared, vms};

/// Changes a VM's latency sensitivity and reservations, also while it runs. Refused with numbers, and nothing changed, when the
/// host cannot honour it.
#[utoipa::path(patch, path = "/v1/vms/{name}/latency", tag = "VMs", request_body = ChangeLatency,
    params(("name" = Name, Path, description = "VM")),
    responses((status = 200, body = Document<VmDesired, VmStatus>), (status = 400, body = ApiError),
        (status = 404, body = ApiError), (status = 409, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn change_latency(
    State(app): State<Shared>,
    Named(name): Named,
    Body(change): Body<ChangeLatency>,
) -> Result<Json<Vm>, Failure> {
    let (observed, report) = app.board.lock().for_rules();
    vms::change_vm(&app, name, move |desired, name, vm| {
        let ChangeLatency { latency_sensitivity, cpu_reservation, memory_reservation } = change;
        let spec = &mut vm.vm;
        spec.latency_sensitivity = latency_sensitivity.unwrap_or(spec.latency_sensitivity);
        spec.cpu.reservation = cpu_reservation.unwrap_or(spec.cpu.reservation);
        spec.memory_reservation = memory_reservation.unwrap_or(spec.memory_reservation);
        definition::check_reservations(spec)?;
        admit_reservations(desired, &observed, &report, name, vm)
    })
    .await
}
