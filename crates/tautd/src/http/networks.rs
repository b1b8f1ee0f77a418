//! `/v1/vswitches` and `/v1/portgroups`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use taut_api::network::{PortGroupSpec, PortGroupStatus, VSwitchSpec, VSwitchStatus};
use taut_api::route::{PortGroup, VSwitch};
use taut_api::{ApiError, Document, Name, path};
use taut_plan::admission;

use super::body::{Body, Failure, Named, OnlyNew};
use super::{Shared, not_found};
use crate::status;
use crate::store::{Change, Kind, State as Documents};

/// Every vSwitch.
#[utoipa::path(get, path = path::VSWITCHES, tag = "Networks", responses((status = 200, body = [Document<VSwitchSpec, VSwitchStatus>])))]
pub(super) async fn list_vswitches(State(app): State<Shared>) -> Json<Vec<VSwitch>> {
    let state = app.store.state();
    Json(state.desired.vswitches.keys().filter_map(|name| vswitch(&state, name).ok()).collect())
}

/// One vSwitch.
#[utoipa::path(get, path = path::VSWITCH.pattern(), tag = "Networks",
    params(("name" = Name, Path, description = "vSwitch")),
    responses((status = 200, body = Document<VSwitchSpec, VSwitchStatus>), (status = 404, body = ApiError)))]
pub(super) async fn show_vswitch(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<Json<VSwitch>, Failure> {
    Ok(Json(vswitch(&app.store.state(), &name)?))
}

/// Creates or replaces a vSwitch; with `If-None-Match: *` only creates.
#[utoipa::path(put, path = path::VSWITCH.pattern(), tag = "Networks", request_body = VSwitchSpec,
    params(("name" = Name, Path, description = "vSwitch")),
    responses((status = 200, body = Document<VSwitchSpec, VSwitchStatus>), (status = 400, body = ApiError), (status = 409, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn put_vswitch(
    State(app): State<Shared>,
    Named(name): Named,
    only_new: OnlyNew,
    Body(spec): Body<VSwitchSpec>,
) -> Result<Json<VSwitch>, Failure> {
    let key = name.clone();
    let state = app
        .write(move |desired| {
            only_new.check(desired.vswitches.contains_key(&key), "vSwitch", &key)?;
            Ok(Change::VSwitch(key, Some(spec)))
        })
        .await?;
    Ok(Json(vswitch(&state, &name)?))
}

/// Deletes a vSwitch without port groups.
#[utoipa::path(delete, path = path::VSWITCH.pattern(), tag = "Networks",
    params(("name" = Name, Path, description = "vSwitch")),
    responses((status = 204), (status = 404, body = ApiError), (status = 409, body = ApiError)))]
pub(super) async fn delete_vswitch(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<StatusCode, Failure> {
    app.write(move |desired| {
        desired.vswitches.get(&name).ok_or_else(|| not_found(Kind::VSwitch, &name))?;
        admission::vswitch_unused(desired, &name)?;
        Ok(Change::VSwitch(name, None))
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Every port group.
#[utoipa::path(get, path = path::PORTGROUPS, tag = "Networks", responses((status = 200, body = [Document<PortGroupSpec, PortGroupStatus>])))]
pub(super) async fn list_portgroups(State(app): State<Shared>) -> Json<Vec<PortGroup>> {
    let state = app.store.state();
    Json(state.desired.portgroups.keys().filter_map(|name| portgroup(&state, name).ok()).collect())
}

/// One port group.
#[utoipa::path(get, path = path::PORTGROUP.pattern(), tag = "Networks",
    params(("name" = Name, Path, description = "Port group")),
    responses((status = 200, body = Document<PortGroupSpec, PortGroupStatus>), (status = 404, body = ApiError)))]
pub(super) async fn show_portgroup(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<Json<PortGroup>, Failure> {
    Ok(Json(portgroup(&app.store.state(), &name)?))
}

/// Creates or replaces a port group; what is on it follows at once. With `If-None-Match: *` only creates.
#[utoipa::path(put, path = path::PORTGROUP.pattern(), tag = "Networks", request_body = PortGroupSpec,
    params(("name" = Name, Path, description = "Port group")),
    responses((status = 200, body = Document<PortGroupSpec, PortGroupStatus>), (status = 400, body = ApiError), (status = 409, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn put_portgroup(
    State(app): State<Shared>,
    Named(name): Named,
    only_new: OnlyNew,
    Body(spec): Body<PortGroupSpec>,
) -> Result<Json<PortGroup>, Failure> {
    let key = name.clone();
    let state = app
        .write(move |desired| {
            only_new.check(desired.portgroups.contains_key(&key), "port group", &key)?;
            admission::portgroup(desired, &key, &spec)?;
            Ok(Change::PortGroup(key, Some(spec)))
        })
        .await?;
    Ok(Json(portgroup(&state, &name)?))
}

/// Deletes a port group that nothing is on.
#[utoipa::path(delete, path = path::PORTGROUP.pattern(), tag = "Networks",
    params(("name" = Name, Path, description = "Port group")),
    responses((status = 204), (status = 404, body = ApiError), (status = 409, body = ApiError)))]
pub(super) async fn delete_portgroup(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<StatusCode, Failure> {
    app.write(move |desired| {
        desired.portgroups.get(&name).ok_or_else(|| not_found(Kind::PortGroup, &name))?;
        admission::portgroup_unused(desired, &name)?;
        Ok(Change::PortGroup(name, None))
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn vswitch(state: &Documents, name: &Name) -> Result<VSwitch, ApiError> {
    let spec = state.desired.vswitches.get(name).ok_or_else(|| not_found(Kind::VSwitch, name))?;
    Ok(VSwitch {
        name: name.clone(),
        revision: state.revision_of(Kind::VSwitch, name),
        spec: spec.clone(),
        status: status::vswitch(&state.desired, name),
    })
}

fn portgroup(state: &Documents, name: &Name) -> Result<PortGroup, ApiError> {
    let spec = state.desired.portgroups.get(name).ok_or_else(|| not_found(Kind::PortGroup, name))?;
    Ok(PortGroup {
        name: name.clone(),
        revision: state.revision_of(Kind::PortGroup, name),
        spec: spec.clone(),
        status: status::portgroup(&state.desired, name),
    })
}
