//! `/v1/vms/{name}/vmci`.

use axum::Json;
use axum::extract::State;
use taut_api::error::ErrorKind;
use taut_api::route::{ChangeVmci, Vm};
use taut_api::vm::{VmDesired, VmStatus};
use taut_api::vmci::VmciSpec;
use taut_api::{ApiError, Document, Name};
use taut_plan::Desired;
use taut_plan::admission::documents::admit_vm;
use taut_plan::network::cid::assign_cid;
use taut_vm::definition;

use super::body::{Body, Failure, Named};
use super::{Shared, vms};

/// Changes a VM's VMCI device: domains and limits at once, whether it is there with the VM's next start.
#[utoipa::path(patch, path = "/v1/vms/{name}/vmci", tag = "VMs", request_body = ChangeVmci,
    params(("name" = Name, Path, description = "VM")),
    responses((status = 200, body = Document<VmDesired, VmStatus>), (status = 400, body = ApiError),
        (status = 404, body = ApiError), (status = 409, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn change_vmci(
    State(app): State<Shared>,
    Named(name): Named,
    Body(change): Body<ChangeVmci>,
) -> Result<Json<Vm>, Failure> {
    vms::change_vm(&app, name, move |desired, name, vm| {
        vm.vm.vmci = changed(desired, name, vm.vm.vmci.take(), change)?;
        admit_vm(desired, name, &vm.vm)
    })
    .await
}

/// The device after the change.
fn changed(
    desired: &Desired,
    name: &Name,
    before: Option<VmciSpec>,
    change: ChangeVmci,
) -> Result<Option<VmciSpec>, ApiError> {
    let ChangeVmci { present, domains, unrestricted, connections, half_open } = change;
    let sets = domains.is_some() || unrestricted.is_some() || connections.is_some() || half_open.is_some();
    if present == Some(false) {
        return if sets {
            Err(ApiError::new(
                ErrorKind::Invalid,
                format!("the VMCI device of VM `{name}` is to be removed, and changed as well"),
                "do one of the two",
            ))
        } else {
            Ok(None)
        };
    }
    let Some(mut vmci) = before.or_else(|| (present == Some(true)).then(VmciSpec::default)) else {
        return Err(ApiError::new(
            ErrorKind::Conflict,
            format!("VM `{name}` has no VMCI device"),
            format!("add one: taut vm set {name} --vmci"),
        ));
    };
    vmci.domains = domains.unwrap_or(vmci.domains);
    vmci.unrestricted = unrestricted.unwrap_or(vmci.unrestricted);
    vmci.connections = connections.or(vmci.connections);
    vmci.half_open = half_open.or(vmci.half_open);
    definition::vmci::check(&vmci)?;
    assign_cid(desired, &mut vmci);
    Ok(Some(vmci))
}
