//! `/v1/netns` and `/v1/external-ports`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use taut_api::network::{ExternalPortSpec, ExternalPortStatus, NetnsSpec, NetnsStatus};
use taut_api::route::{ExternalPort, Netns};
use taut_api::{ApiError, Document, Name, path};
use taut_plan::{Owner, admission};

use super::body::{Body, Failure, Named, OnlyNew};
use super::{Shared, not_found};
use crate::board::Seen;
use crate::status;
use crate::store::{Change, Kind, State as Documents};

/// Every namespace attachment.
#[utoipa::path(get, path = path::NETNS, tag = "Attachments", responses((status = 200, body = [Document<NetnsSpec, NetnsStatus>])))]
pub(super) async fn list_netns(State(app): State<Shared>) -> Json<Vec<Netns>> {
    let (state, seen) = app.look();
    Json(state.desired.netns.keys().filter_map(|name| netns(&state, &seen, name).ok()).collect())
}

/// One namespace attachment.
#[utoipa::path(get, path = path::NETNS_ATTACHMENT.pattern(), tag = "Attachments",
    params(("name" = Name, Path, description = "Attachment")),
    responses((status = 200, body = Document<NetnsSpec, NetnsStatus>), (status = 404, body = ApiError)))]
pub(super) async fn show_netns(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<Json<Netns>, Failure> {
    let (state, seen) = app.look();
    Ok(Json(netns(&state, &seen, &name)?))
}

/// Attaches a namespace, or changes how it is attached; with `If-None-Match: *` only attaches.
#[utoipa::path(put, path = path::NETNS_ATTACHMENT.pattern(), tag = "Attachments", request_body = NetnsSpec,
    params(("name" = Name, Path, description = "Attachment")),
    responses((status = 200, body = Document<NetnsSpec, NetnsStatus>), (status = 400, body = ApiError), (status = 409, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn put_netns(
    State(app): State<Shared>,
    Named(name): Named,
    only_new: OnlyNew,
    Body(mut spec): Body<NetnsSpec>,
) -> Result<Json<Netns>, Failure> {
    let key = name.clone();
    let state = app
        .write(move |desired| {
            only_new.check(desired.netns.contains_key(&key), "namespace attachment", &key)?;
            spec.mac.get_or_insert_with(|| Owner::Netns(key.clone()).derived_mac());
            admission::netns(desired, &key, &spec)?;
            Ok(Change::Netns(key, Some(spec)))
        })
        .await?;
    Ok(Json(netns(&state, &app.board.lock(), &name)?))
}

/// Detaches a namespace; one that was made for the attachment is removed.
#[utoipa::path(delete, path = path::NETNS_ATTACHMENT.pattern(), tag = "Attachments",
    params(("name" = Name, Path, description = "Attachment")),
    responses((status = 204), (status = 404, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn delete_netns(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<StatusCode, Failure> {
    app.write(move |desired| {
        desired.netns.get(&name).ok_or_else(|| not_found(Kind::Netns, &name))?;
        Ok(Change::Netns(name, None))
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Every external port.
#[utoipa::path(get, path = path::EXTERNAL_PORTS, tag = "Attachments",
    responses((status = 200, body = [Document<ExternalPortSpec, ExternalPortStatus>])))]
pub(super) async fn list_external(State(app): State<Shared>) -> Json<Vec<ExternalPort>> {
    let (state, seen) = app.look();
    Json(state.desired.external.keys().filter_map(|name| external(&state, &seen, name).ok()).collect())
}

/// One external port.
#[utoipa::path(get, path = path::EXTERNAL_PORT.pattern(), tag = "Attachments",
    params(("name" = Name, Path, description = "External port")),
    responses((status = 200, body = Document<ExternalPortSpec, ExternalPortStatus>), (status = 404, body = ApiError)))]
pub(super) async fn show_external(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<Json<ExternalPort>, Failure> {
    let (state, seen) = app.look();
    Ok(Json(external(&state, &seen, &name)?))
}

/// Attaches a front end that taut did not start; with `If-None-Match: *` does not change one that is attached.
#[utoipa::path(put, path = path::EXTERNAL_PORT.pattern(), tag = "Attachments", request_body = ExternalPortSpec,
    params(("name" = Name, Path, description = "External port")),
    responses((status = 200, body = Document<ExternalPortSpec, ExternalPortStatus>), (status = 400, body = ApiError), (status = 409, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn put_external(
    State(app): State<Shared>,
    Named(name): Named,
    only_new: OnlyNew,
    Body(mut spec): Body<ExternalPortSpec>,
) -> Result<Json<ExternalPort>, Failure> {
    let key = name.clone();
    let state = app
        .write(move |desired| {
            only_new.check(desired.external.contains_key(&key), "external port", &key)?;
            spec.mac.get_or_insert_with(|| Owner::External(key.clone()).derived_mac());
            admission::external(desired, &key, &spec)?;
            Ok(Change::External(key, Some(spec)))
        })
        .await?;
    Ok(Json(external(&state, &app.board.lock(), &name)?))
}

/// Detaches an external port.
#[utoipa::path(delete, path = path::EXTERNAL_PORT.pattern(), tag = "Attachments",
    params(("name" = Name, Path, description = "External port")),
    responses((status = 204), (status = 404, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn delete_external(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<StatusCode, Failure> {
    app.write(move |desired| {
        desired.external.get(&name).ok_or_else(|| not_found(Kind::External, &name))?;
        Ok(Change::External(name, None))
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn netns(state: &Documents, seen: &Seen, name: &Name) -> Result<Netns, ApiError> {
    let spec = state.desired.netns.get(name).ok_or_else(|| not_found(Kind::Netns, name))?;
    Ok(Netns {
        name: name.clone(),
        revision: state.revision_of(Kind::Netns, name),
        spec: spec.clone(),
        status: status::netns(&state.desired, seen, name),
    })
}

fn external(state: &Documents, seen: &Seen, name: &Name) -> Result<ExternalPort, ApiError> {
    let spec = state.desired.external.get(name).ok_or_else(|| not_found(Kind::External, name))?;
    Ok(ExternalPort {
        name: name.clone(),
        revision: state.revision_of(Kind::External, name),
        spec: spec.clone(),
        status: status::external(&state.desired, seen, name),
    })
}
