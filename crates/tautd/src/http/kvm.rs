//! `/v1/vms/{name}/kvm`.

use std::path::Path;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use taut_api::error::ErrorKind;
use taut_api::kvm::KvmCounters;
use taut_api::machine::VmAccelerator;
use taut_api::{ApiError, Name, path};
use taut_vm::launch::RunPaths;
use taut_vm::qmp::{Qmp, QmpError};

use super::body::{Failure, Named};
use super::{Shared, not_found};
use crate::store::Kind;

/// Time limit for a monitor's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shows KVM's counters of a running VM's vCPUs since they were created: exits, and how vCPUs halt.
/// If there are none, as under emulation, the answer says why.
#[utoipa::path(get, path = path::VM_KVM.pattern(), tag = "VMs", params(("name" = Name, Path, description = "VM")),
    responses((status = 200, body = KvmCounters), (status = 404, body = ApiError), (status = 409, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn kvm_counters(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<Json<KvmCounters>, Failure> {
    let (state, seen) = app.look();
    if !state.desired.vms.contains_key(&name) {
        return Err(not_found(Kind::Vm, &name).into());
    }
    let process = seen.observed.vms.get(&name).and_then(|seen| seen.process.as_ref()).ok_or_else(|| {
        ApiError::new(ErrorKind::Conflict, format!("{name} does not run"), format!("taut vm start {name}"))
    })?;
    let none = match process.accelerator {
        VmAccelerator::Kvm => None,
        VmAccelerator::Tcg => {
            Some("the VM runs under emulation: QEMU executes the guest's code, and KVM is not involved")
        }
        VmAccelerator::Native => Some("the VM is a microguest: its vCPUs are ordinary threads of the host"),
    };
    if let Some(because) = none {
        return Ok(Json(KvmCounters::none(because)));
    }
    let monitor = RunPaths::new(app.run_dir.join("vms").join(name.as_str())).qmp();
    let asked = tokio::task::spawn_blocking(move || ask(&name, &monitor));
    let counters = asked.await.map_err(|error| Failure::internal("the query was interrupted", &error))?;
    Ok(Json(counters?))
}

/// Queries the VM's monitor.
fn ask(name: &Name, monitor: &Path) -> Result<KvmCounters, ApiError> {
    match Qmp::connect(monitor, PATIENCE).and_then(|mut qmp| qmp.kvm_counters()) {
        Ok(vcpus) if vcpus.is_empty() => Ok(KvmCounters::none(
            "the host's kernel has no such counters (Linux 5.14 and later has), or the VM is just starting",
        )),
        Ok(vcpus) => Ok(KvmCounters { vcpus, none_because: None }),
        Err(QmpError::Refused { reason, .. }) => {
            Ok(KvmCounters::none(format!("QEMU has no such counters (7.1 and later has): {reason}")))
        }
        Err(error) => Err(ApiError::new(
            ErrorKind::Unavailable,
            format!("the monitor of {name} did not return KVM's counters"),
            format!(
                "try again; {} accepts one client at a time, so close other programs that use it",
                monitor.display()
            ),
        )
        .because(&error)),
    }
}
