//! `/v1/events`.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use taut_api::event::Event;
use taut_api::{ApiError, path};

use super::Shared;
use super::body::{Failure, bad_query};

/// Maximum number of events in one answer.
const MOST: u32 = 10_000;
/// Longest wait in seconds.
const LONGEST_WAIT: u64 = 300;

/// Query of the event log.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only events after this number.
    #[serde(default)]
    since: u64,
    /// Maximum number of events, the oldest first.
    #[serde(default = "most")]
    limit: u32,
    /// Seconds to wait for the first event.
    #[serde(default)]
    wait: u64,
}

const fn most() -> u32 {
    MOST
}

/// Lists events, oldest first.
#[utoipa::path(get, path = path::EVENTS, tag = "Events", params(Which),
    responses((status = 200, body = [Event]), (status = 400, body = ApiError)))]
pub(super) async fn list_events(
    State(app): State<Shared>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Vec<Event>>, Failure> {
    let hint = "use since=NUMBER, limit=NUMBER, wait=SECONDS";
    let Query(which) = which.map_err(|error| bad_query(&error, hint))?;
    if which.wait > 0 {
        let mut newest = app.store.newest_event();
        let patience = Duration::from_secs(which.wait.min(LONGEST_WAIT));
        // After the wait the answer is empty.
        let _ = tokio::time::timeout(patience, newest.wait_for(|&newest| newest > which.since)).await;
    }
    // The disk may be slow.
    let events = tokio::task::spawn_blocking(move || app.store.events(which.since, which.limit.min(MOST)));
    let events = events.await.map_err(|error| Failure::internal("reading events was interrupted", &error))?;
    Ok(Json(events.map_err(|error| Failure::internal("the events cannot be read", &error))?))
}
