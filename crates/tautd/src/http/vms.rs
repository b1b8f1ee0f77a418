//! `/v1/vms`.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use taut_api::error::ErrorKind;
use taut_api::fabric::PortId;
use taut_api::role::Role;
use taut_api::route::{CreateVm, CreatedVm, SetPower, Vm, VmFormat};
use taut_api::vm::{Power, VmDesired, VmSpec, VmStatus};
use taut_api::{ApiError, Document, Name, path};
use taut_plan::admission::documents::admit_vm;
use taut_plan::admission::network_io::admit_uplinks_of_vm;
use taut_plan::admission::placement::{admit_placement, remove_absent};
use taut_plan::admission::reservations::admit_reservations;
use taut_plan::network::cid::assign_cid;
use taut_plan::resources::Decided;
use taut_plan::{Desired, Observed, Owner};
use taut_vm::definition;
use taut_vm::parsed::Parsed;

use super::body::{Body, Condition, Failure, Named, exists_already};
use super::{App, Shared, not_found};
use crate::access::caller::Caller;
use crate::access::files;
use crate::access::ids::check_membership;
use crate::access::rights::Rights;
use crate::board::Seen;
use crate::inbox::Message;
use crate::interface;
use crate::reconcile::admit_devices;
use crate::status;
use crate::store::{Change, Kind, State as Documents};
use crate::vms::Vms;

/// Lists all VMs.
#[utoipa::path(get, path = path::VMS, tag = "VMs",
    responses((status = 200, body = [Document<VmDesired, VmStatus>]), (status = 500, body = ApiError)))]
pub(super) async fn list_vms(State(app): State<Shared>) -> Result<Json<Vec<Vm>>, Failure> {
    Ok(Json(all(&app)?))
}

/// Returns all VMs, by name.
pub(super) fn all(app: &App) -> Result<Vec<Vm>, Failure> {
    let (state, seen) = app.look();
    let now = Now::new(&state, &seen);
    state.desired.vms.iter().map(|(name, vm)| document(app, &now, name, vm)).collect()
}

/// Shows one VM.
#[utoipa::path(get, path = path::VM.pattern(), tag = "VMs", params(("name" = Name, Path, description = "VM")),
    responses((status = 200, body = Document<VmDesired, VmStatus>), (status = 404, body = ApiError)))]
pub(super) async fn show_vm(State(app): State<Shared>, Named(name): Named) -> Result<Json<Vm>, Failure> {
    answer(&app, &app.store.state(), &name)
}

/// Creates a VM from a file's text.
#[utoipa::path(post, path = path::VMS, tag = "VMs", request_body = CreateVm,
    responses((status = 201, body = CreatedVm), (status = 400, body = ApiError), (status = 409, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn create_vm(
    State(app): State<Shared>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Body(request): Body<CreateVm>,
) -> Result<(StatusCode, Json<CreatedVm>), Failure> {
    let owner = owner(&app, &caller);
    let (rights, sender) = (owner.clone(), caller.clone());
    // The check looks at the files and the group that the VM names, which may take long.
    let (request, parsed) = tokio::task::spawn_blocking(move || {
        let parsed = parse(&rights, &sender, &request);
        (request, parsed)
    })
    .await
    .map_err(|error| Failure::internal("the check of the VM was interrupted", &error))?;
    let parsed = parsed.map_err(|error| Failure::from(error).about(request.name.clone()))?;
    let name = parsed.name.clone();
    if !parsed.spec.passthrough.is_empty() {
        may(&app, &caller, Role::Admin, "a device that is passed through")
            .map_err(|error| Failure::from(error).about(name.clone()))?;
    }
    create(&app, owner, &request, parsed).await.map_err(|failure| failure.about(name))
}

/// Returns the owner of a VM that this caller creates: root for an administrator on the host, whose
/// VMs may name any file. Nobody owns VMs that are created over TCP.
pub(super) fn owner(app: &App, caller: &Caller) -> Rights {
    match caller.role(&app.roles) {
        Some(Role::Admin) if caller.token().is_none() => Rights::root(),
        _ => caller.rights(),
    }
}

/// Refuses a VM over TCP that uses something of the host, whatever the token's role: the kernel
/// names no user whose rights could decide.
fn check_remote(caller: &Caller, spec: &VmSpec) -> Result<(), ApiError> {
    let group = spec.vmci.as_ref().is_some_and(|vmci| vmci.group.is_some());
    let uses = if let Some(file) = files::named(spec).first() {
        format!("the {} `{}`", file.purpose, file.path.display())
    } else if !spec.passthrough.is_empty() {
        "a device of the host".to_owned()
    } else if group {
        "a group of the host".to_owned()
    } else {
        return Ok(());
    };
    refuse_remote(caller, &uses)
}

/// Refuses to use something of the host for a VM over TCP.
pub(super) fn refuse_remote(caller: &Caller, uses: &str) -> Result<(), ApiError> {
    if caller.token().is_none() {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorKind::Forbidden,
        format!("over TCP no VM can be given {uses}"),
        "do it on the host, where files are opened with the rights of a user",
    ))
}

/// Refuses a part of a request that needs a higher role than the request itself.
fn may(app: &App, caller: &Caller, needed: Role, what: &str) -> Result<(), ApiError> {
    let has = caller.role(&app.roles);
    if has >= Some(needed) { Ok(()) } else { Err(app.roles.refusal(caller, needed, what)) }
}

/// Reads and checks a VM file with the rights of the VM's owner: what the owner may not open, the
/// VM may not either.
fn parse(owner: &Rights, caller: &Caller, request: &CreateVm) -> Result<Parsed, ApiError> {
    let parsed = definition::read(request)?;
    // Before any file is opened: an answer must not tell a caller over TCP which paths exist.
    check_remote(caller, &parsed.spec)?;
    let spec = parsed.spec.clone();
    let checked = owner.lend(files::PATIENCE, move || definition::check(&spec));
    let checked = checked.map_err(|error| files::not_lent(owner.uid, &error))?;
    checked.map_err(|mut error| {
        if !owner.are_roots() && !error.causes.is_empty() {
            error.causes.push(format!("files are opened with the rights of user {}", owner.uid));
        }
        error
    })?;
    files::check(owner, &parsed.spec)?;
    let group = parsed.spec.vmci.as_ref().and_then(|vmci| vmci.group.as_ref());
    group.map_or(Ok(()), |group| check_membership(owner, group))?;
    Ok(parsed)
}

async fn create(
    app: &Shared,
    owner: Rights,
    request: &CreateVm,
    mut parsed: Parsed,
) -> Result<(StatusCode, Json<CreatedVm>), Failure> {
    if let Some(default) = &request.default_portgroup {
        let state = app.store.state();
        parsed.replace_unknown_portgroups(|name| state.desired.portgroups.contains_key(name), default);
    }
    let (observed, report) = app.board.lock().for_rules();
    if request.format == VmFormat::Vmx {
        for (field, note) in remove_absent(&observed.host, &mut parsed.spec.placement) {
            parsed.remark(field, &note);
        }
    }
    let name = parsed.name.clone().ok_or_else(|| {
        ApiError::new(
            ErrorKind::Invalid,
            "the VM has no name: neither the request nor the file gives one",
            "write `name = \"…\"` into the file, or give the name with the request (--name)",
        )
    })?;
    let vm = VmDesired { vm: parsed.spec, power: request.power };
    let key = name.clone();
    let state = app
        .write_for(Some(owner), move |state| {
            let desired = &state.desired;
            if desired.vms.contains_key(&key) {
                return Err(exists_already(Kind::Vm, &key));
            }
            let mut vm = vm;
            if let Some(vmci) = &mut vm.vm.vmci {
                assign_cid(desired, vmci);
            }
            admit_vm(desired, &key, &vm.vm)?;
            admit_placement(&observed.host, &key, &vm.vm.placement)?;
            admit_reservations(desired, &observed, &report, &key, &vm)?;
            admit_uplinks_of_vm(desired, &key, &vm, &interface::speed)?;
            admit_devices(desired, &key, &vm.vm)?;
            Ok(Change::Vm(key, Some(vm)))
        })
        .await?;
    let Json(vm) = answer(app, &state, &name)?;
    Ok((StatusCode::CREATED, Json(CreatedVm { vm, imported: parsed.imported })))
}

/// Deletes a VM that does not run. Its disks are kept.
#[utoipa::path(delete, path = path::VM.pattern(), tag = "VMs", params(("name" = Name, Path, description = "VM")),
    responses((status = 204), (status = 404, body = ApiError), (status = 409, body = ApiError)))]
pub(super) async fn delete_vm(State(app): State<Shared>, Named(name): Named) -> Result<StatusCode, Failure> {
    let board = app.board.clone();
    app.write(move |state| {
        if !state.desired.vms.contains_key(&name) {
            return Err(not_found(Kind::Vm, &name));
        }
        let process = board.lock().observed.vms.get(&name).and_then(|seen| seen.process.clone());
        match process {
            Some(process) => Err(ApiError::new(
                ErrorKind::Conflict,
                format!("VM `{name}` runs (process {})", process.pid),
                format!("stop it first: taut vm stop {name}; or use --force"),
            )),
            None => Ok(Change::Vm(name, None)),
        }
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Starts or stops a VM. Answers when the wanted state is on disk; the VM's status shows the
/// progress. Starting a failed VM tries again. Nothing is written for a VM that is to be on and
/// runs, or is to be off and is.
#[utoipa::path(post, path = path::VM_POWER.pattern(), tag = "VMs", request_body = SetPower,
    params(("name" = Name, Path, description = "VM")),
    responses((status = 200, body = Document<VmDesired, VmStatus>), (status = 404, body = ApiError),
        (status = 409, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn set_power(
    State(app): State<Shared>,
    Named(name): Named,
    Body(wanted): Body<SetPower>,
) -> Result<Json<Vm>, Failure> {
    let (observed, report) = app.board.lock().for_rules();
    let present = app.store.state();
    if is_already(&present, &observed, &name, wanted) {
        return answer(&app, &present, &name);
    }
    let state = write_vm(&app, &name, Condition::default(), move |desired, name, vm| {
        vm.power = wanted.power;
        if wanted.power == Power::On {
            admit_reservations(desired, &observed, &report, name, vm)?;
            admit_uplinks_of_vm(desired, name, vm, &interface::speed)?;
            if observed.vms.get(name).is_none_or(|seen| seen.process.is_none()) {
                admit_devices(desired, name, &vm.vm)?;
            }
        }
        Ok(())
    })
    .await?;
    forgive(&app, &name);
    app.inbox.send(match wanted.power {
        Power::On => Message::Start,
        Power::Off if wanted.force => Message::Kill(name.clone()),
        Power::Off => Message::Wake,
    });
    answer(&app, &state, &name)
}

/// Returns whether a VM has this power state, and nobody has asked for another.
fn is_already(documents: &Documents, observed: &Observed, name: &Name, wanted: SetPower) -> bool {
    let is_asked_for = documents.desired.vms.get(name).is_some_and(|vm| vm.power == wanted.power);
    let process = observed.process(name);
    is_asked_for
        && match wanted.power {
            Power::On => process.is_some_and(|process| !process.stopping),
            Power::Off => process.is_none() && !wanted.force,
        }
}

/// Writes one VM's document, changed by `change`, in one store write. `change` gets all documents,
/// the VM's name and its document. When it fails, or the document does not meet the condition,
/// nothing is written.
pub(super) async fn write_vm<F>(
    app: &Shared,
    name: &Name,
    condition: Condition,
    change: F,
) -> Result<Arc<Documents>, Failure>
where
    F: FnOnce(&Desired, &Name, &mut VmDesired) -> Result<(), ApiError> + Send + 'static,
{
    let name = name.clone();
    app.write(move |state| {
        let mut vm = state.desired.vms.get(&name).ok_or_else(|| not_found(Kind::Vm, &name))?.clone();
        condition.check(state, Kind::Vm, &name)?;
        change(&state.desired, &name, &mut vm)?;
        Ok(Change::Vm(name, Some(vm)))
    })
    .await
}

/// Clears an earlier failure at once, so that the next answer does not report it.
fn forgive(app: &App, name: &Name) {
    Vms::clear_failure(&app.run_dir, name);
    let mut seen = app.board.lock();
    seen.failures_cleared += 1;
    seen.refusals.remove(name);
    if let Some(vm) = seen.observed.vms.get_mut(name) {
        vm.failure = None;
    }
}

/// Builds the answer about one VM from the present state.
pub(super) fn answer(app: &App, state: &Documents, name: &Name) -> Result<Json<Vm>, Failure> {
    let vm = state.desired.vms.get(name).ok_or_else(|| not_found(Kind::Vm, name))?;
    let seen = app.board.lock().clone();
    Ok(Json(document(app, &Now::new(state, &seen), name, vm)?))
}

/// The present state, and the decisions about it.
struct Now<'a> {
    state: &'a Documents,
    seen: &'a Seen,
    /// The documents with the sizes that running VMs have.
    running: Cow<'a, Desired>,
    decided: Decided,
}

impl<'a> Now<'a> {
    fn new(state: &'a Documents, seen: &'a Seen) -> Self {
        let running = state.desired.as_running(&seen.observed);
        let decided = Decided::new(&running, &seen.observed, &seen.report);
        Self { state, seen, running, decided }
    }
}

fn document(app: &App, now: &Now<'_>, name: &Name, vm: &VmDesired) -> Result<Vm, Failure> {
    let Now { state, seen, running, decided } = now;
    let mut status = status::vm(running, seen, decided, &app.run_dir, name, vm);
    status.owner = state.owner_of(name).uid;
    if let Some(port) = state.desired.numbers.port(&Owner::Vmci(name.clone()))
        && let Some(vmci) = &mut status.vmci
    {
        let counters = app.counters.read_vmci(port);
        vmci.counters = counters.map_err(|error| Failure::internal("the counters cannot be read", &error))?;
    }
    for nic in status.nics.iter_mut().filter(|nic| nic.guest_mac.effective_mac.is_some()) {
        let Ok(port) = nic.port.try_into() else { continue };
        let counters = app.counters.read(PortId(port));
        let counters = counters.map_err(|error| Failure::internal("the counters cannot be read", &error))?;
        nic.guest_mac.mac_taken = counters.address_refused;
    }
    Ok(Vm { name: name.clone(), revision: state.revision_of(Kind::Vm, name), spec: vm.clone(), status })
}
