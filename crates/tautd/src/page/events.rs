//! The page of events.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use taut_api::error::ErrorKind;
use taut_api::event::Event;
use taut_api::{ApiError, path};
use taut_page::view::events::{self, Filter};

use super::api::Api;
use super::shown::Shown;

/// Query of the event log. A form sends fields that are empty, too.
#[derive(Debug, serde::Deserialize)]
pub(super) struct EventQuery {
    #[serde(default)]
    level: String,
    #[serde(default)]
    newest: String,
}

pub(super) async fn show(api: Api, query: Result<Query<EventQuery>, QueryRejection>) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let filter = filter(query)?;
        let (newest, least) = (filter.newest, filter.least.as_str());
        let events: Vec<Event> = api.get(&format!("{}?newest={newest}&level={least}", path::EVENTS)).await?;
        Ok(events::page(&frame, &events, filter))
    };
    let page = page.await;
    Shown::of(&frame, page)
}

fn filter(query: Result<Query<EventQuery>, QueryRejection>) -> Result<Filter, ApiError> {
    let bad = |message| {
        let hint = format!("write level=info, warning or error, and newest=1 to {}", Filter::MOST);
        ApiError::new(ErrorKind::Invalid, message, hint)
    };
    let Query(EventQuery { level, newest }) =
        query.map_err(|error| bad("the query cannot be read").because(&error))?;
    let mut filter = Filter::default();
    if !level.is_empty() {
        filter.least = events::level(&level).ok_or_else(|| bad("there is no such level"))?;
    }
    if !newest.is_empty() {
        let number = newest.parse().ok().filter(|number| (1..=Filter::MOST).contains(number));
        filter.newest = number.ok_or_else(|| bad("so many events cannot be listed"))?;
    }
    Ok(filter)
}
