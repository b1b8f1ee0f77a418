//! `/v1/events`.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::{Extension, Json};
use taut_api::error::ErrorKind;
use taut_api::event::{Event, Level};
use taut_api::{ApiError, path};
use tokio::time::Instant;

use super::Shared;
use super::body::{Failure, bad_query};
use crate::access::places::Places;
use crate::store::{Selection, Which};

/// Maximum number of events in one answer.
const MOST: u32 = 10_000;
/// Longest wait in seconds.
const LONGEST_WAIT: u64 = 300;

/// Query of the event log.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Asked {
    /// Only events after this number.
    #[serde(default)]
    since: u64,
    /// Maximum number of events, the oldest first; 10000 at most, and by default.
    #[serde(default)]
    limit: Option<u32>,
    /// Only so many of the newest events; 10000 at most. They are listed from the oldest on, too.
    #[serde(default)]
    newest: Option<u32>,
    /// Only events of at least this level.
    #[serde(default)]
    #[param(inline)]
    level: Level,
    /// Seconds to wait for the first event.
    #[serde(default)]
    wait: u64,
}

impl Asked {
    fn selection(&self) -> Result<Selection, ApiError> {
        let which = match (self.limit, self.newest) {
            (Some(_), Some(_)) => {
                let message = "limit= is for the oldest events and newest= for the newest ones";
                return Err(ApiError::new(ErrorKind::Invalid, message, "give one of them"));
            }
            (limit, None) => Which::Oldest(limit.unwrap_or(MOST).min(MOST)),
            (None, Some(newest)) => Which::Newest(newest.min(MOST)),
        };
        // SQLite has no greater numbers.
        let since = self.since.min(i64::MAX.cast_unsigned());
        Ok(Selection { since, least: self.level, which })
    }
}

/// Lists events, oldest first.
#[utoipa::path(get, path = path::EVENTS, tag = "Events", params(Asked),
    responses((status = 200, body = [Event]), (status = 400, body = ApiError)))]
pub(super) async fn list_events(
    State(app): State<Shared>,
    places: Option<Extension<Places>>,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Vec<Event>>, Failure> {
    let hint = "use since=NUMBER, limit=NUMBER or newest=NUMBER, level=info, warning or error, wait=SECONDS";
    let Query(asked) = asked.map_err(|error| bad_query(&error, hint))?;
    let mut selection = asked.selection()?;
    let until = Instant::now() + Duration::from_secs(asked.wait.min(LONGEST_WAIT));
    let mut newest = app.store.newest_event();
    loop {
        let seen = *newest.borrow_and_update();
        let store = app.store.clone();
        // The disk may be slow.
        let events = tokio::task::spawn_blocking(move || store.select_events(selection)).await;
        let events = events.map_err(|error| Failure::internal("reading events was interrupted", &error))?;
        let events = events.map_err(|error| Failure::internal("the events cannot be read", &error))?;
        if !events.is_empty() || asked.wait == 0 {
            return Ok(Json(events));
        }
        if let Some(places) = &places {
            places.pause();
        }
        let next = newest.wait_for(|&newest| newest > seen.max(selection.since));
        // After the wait, or at the daemon's end, the answer is empty.
        if !matches!(tokio::time::timeout_at(until, next).await, Ok(Ok(_))) {
            return Ok(Json(events));
        }
        // The client asks again, as after the wait, if too many requests are worked on.
        if let Some(places) = &places
            && places.resume().await.is_err()
        {
            return Ok(Json(events));
        }
        // None of those that were seen is of the level that was asked for.
        selection.since = selection.since.max(seen);
    }
}
