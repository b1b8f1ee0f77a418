//! `/v1/audit` and `/v1/audit/check`.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use taut_api::audit::{AuditCheck, AuditEntry};
use taut_api::{ApiError, path};

use super::Shared;
use super::body::{Failure, bad_query};
use crate::access::audit::Chain;

/// Maximum number of entries in one answer.
const MOST: usize = 10_000;
/// Number of entries that are listed if the query names none.
const LISTED: usize = 100;

/// Query of the audit record.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Number of entries: the newest, oldest first.
    #[serde(default = "listed")]
    lines: usize,
    /// Only entries of this user.
    uid: Option<u32>,
    /// Requests that were refused because of their caller's role, instead of changes.
    #[serde(default)]
    refused: bool,
}

/// The chain of records that is checked.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WhichChain {
    /// Requests that were refused because of their caller's role, instead of changes.
    #[serde(default)]
    refused: bool,
}

const fn listed() -> usize {
    LISTED
}

const fn chain(refused: bool) -> Chain {
    if refused { Chain::Refused } else { Chain::Changes }
}

/// Lists the newest changes with their callers and outcomes, oldest first.
#[utoipa::path(get, path = path::AUDIT, tag = "Audit", params(Which),
    responses((status = 200, body = [AuditEntry]), (status = 400, body = ApiError),
        (status = 500, body = ApiError)))]
pub(super) async fn list_audit(
    State(app): State<Shared>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Vec<AuditEntry>>, Failure> {
    let hint = "use lines=NUMBER, uid=NUMBER, refused=true";
    let Query(Which { lines, uid, refused }) = which.map_err(|error| bad_query(&error, hint))?;
    read(move || app.audit.newest(chain(refused), lines.min(MOST), uid)).await
}

/// Checks the hash chain of the audit record.
#[utoipa::path(get, path = path::AUDIT_CHECK, tag = "Audit", params(WhichChain),
    responses((status = 200, body = AuditCheck), (status = 400, body = ApiError),
        (status = 500, body = ApiError)))]
pub(super) async fn check_audit(
    State(app): State<Shared>,
    which: Result<Query<WhichChain>, QueryRejection>,
) -> Result<Json<AuditCheck>, Failure> {
    let Query(WhichChain { refused }) = which.map_err(|error| bad_query(&error, "use refused=true"))?;
    read(move || app.audit.check(chain(refused))).await
}

/// Reads the files on a thread that may wait for the disk.
async fn read<T: Send + 'static>(
    files: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<Json<T>, Failure> {
    let read = tokio::task::spawn_blocking(files).await;
    let read = read.map_err(|error| Failure::internal("reading the audit record was interrupted", &error))?;
    Ok(Json(read.map_err(|error| Failure::internal("the audit record cannot be read", &error))?))
}
