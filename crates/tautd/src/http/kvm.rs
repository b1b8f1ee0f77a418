//! `/v1/vms/{name}/kvm`.

use std::path::Path;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use taut_api::error::ErrorKind;
use taut_api::kvm::KvmCounters;
use taut_api::{ApiError, Name, path};
use taut_vm::launch::RunPaths;
use taut_vm::qmp::{Qmp, QmpError};

use super::body::{Failure, Named};
use super::{Shared, not_found};
use crate::store::Kind;

/// How long a monitor may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What KVM has counted of a running VM's vCPUs since they were made: exits, and how they halt. Where nothing is counted, as under
/// emulation, the answer says why.
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
    let none = match process.accelerator.as_str() {
        "kvm" => None,
        "tcg" => Some(
            "it runs under emulation, where QEMU itself executes the guest's code and lets idle vCPUs sleep",
        ),
        _ => Some("it is a microguest, whose vCPUs are ordinary threads of the host"),
    };
    if let Some(because) = none {
        return Ok(Json(KvmCounters::none(because)));
    }
    let monitor = RunPaths::new(app.run_dir.join("vms").join(name.as_str())).qmp();
    let asked = tokio::task::spawn_blocking(move || ask(&name, &monitor));
    let counters = asked.await.map_err(|error| Failure::internal("the question was interrupted", &error))?;
    Ok(Json(counters?))
}

/// Asks the VM's monitor.
fn ask(name: &Name, monitor: &Path) -> Result<KvmCounters, ApiError> {
    match Qmp::connect(monitor, PATIENCE).and_then(|mut qmp| qmp.kvm_counters()) {
        Ok(vcpus) if vcpus.is_empty() => Ok(KvmCounters::none(
            "the host's kernel does not tell (Linux does from 5.14 on), or the VM is just starting",
        )),
        Ok(vcpus) => Ok(KvmCounters { vcpus, none_because: None }),
        Err(QmpError::Refused { reason, .. }) => {
            Ok(KvmCounters::none(format!("its QEMU does not tell (it does from 7.1 on): {reason}")))
        }
        Err(error) => Err(ApiError::new(
            ErrorKind::Unavailable,
            format!("the monitor of {name} does not say what KVM has counted"),
            format!("try again; does another program hold {}, which takes one at a time?", monitor.display()),
        )
        .because(&error)),
    }
}
