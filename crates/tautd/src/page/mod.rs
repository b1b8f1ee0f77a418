//! The page: the API's answers as HTML, for browsers, on a socket of its own.
//!
//! The handlers send requests to the API's own router as the caller ([`api`]), so the page can do
//! what its user may do over the API: the same roles, checks, order of writes, and audit record.
//! The crate `page` makes HTML of the answers.

mod api;
mod assets;
mod audit;
mod events;
pub(crate) mod guard;
mod guide;
mod host;
mod networks;
mod port;
mod portgroup;
mod shaping;
mod shown;
mod sockets;
mod vms;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::{FormRejection, QueryRejection};
use axum::extract::{ConnectInfo, FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Form, Router};
use taut_api::error::ErrorKind;
use taut_api::name::BadName;
use taut_api::statistics::Period;
use taut_api::{ApiError, Name};
use taut_page::form::Fields;
use taut_page::frame::Frame;
use taut_page::guide::Document;

use crate::access::caller::Caller;
use crate::access::sites::Way;
use crate::http::App;

use api::Api;
use shown::Shown;

/// Longest form.
const MAX_FORM: usize = 64 << 10;

/// Answers with an error as a page, to a caller of whom nothing is known.
pub(crate) fn error(error: &ApiError) -> Response {
    guard::protect(Shown::error(&Frame::default(), error).into_response())
}

/// Returns the router of the page for requests that come this way.
pub(crate) fn router(app: &Arc<App>, way: Way) -> Router {
    let api = crate::http::router(app.clone());
    Router::new()
        .route("/", get(vms::list))
        .route("/vms/{name}", get(vms::show))
        .route("/processes/{pid}", get(vms::show_process))
        .route("/host", get(host::show))
        .route("/sockets", get(sockets::show))
        .route("/events", get(events::show))
        .route("/audit", get(audit::show))
        .route("/networks", get(networks::show))
        .route("/portgroups/{name}", get(shaping::show_group).post(shaping::change_group))
        .route("/ports/{*owner}", get(shaping::show_port).post(shaping::change_port))
        .route(Document::Reasons.address(), get(guide::reasons))
        .route(Document::Checks.address(), get(guide::checks))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(api)
        .route("/assets/{name}", get(assets::serve))
        .layer(DefaultBodyLimit::max(MAX_FORM))
        .layer(from_fn_with_state(way, guard::pass))
}

async fn unknown(api: Api) -> Shown {
    Shown::error(&api.frame().await, &no_such_page())
}

fn no_such_page() -> ApiError {
    ApiError::new(ErrorKind::NotFound, "there is no such page", "start at the list of VMs")
}

/// The variable part of an address. What cannot be decoded names nothing.
#[derive(Debug)]
struct Part(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for Part {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(Path::<String>::from_request_parts(parts, state).await.ok().map(|Path(part)| part)))
    }
}

impl Part {
    /// Returns the text.
    fn text(self) -> Result<String, ApiError> {
        self.0.ok_or_else(no_such_page)
    }

    /// Returns the name.
    fn name(self) -> Result<Name, ApiError> {
        self.text()?.parse().map_err(|error: BadName| {
            let hint = "the list of VMs and the page of networks show the names that exist";
            ApiError::new(ErrorKind::NotFound, error.to_string(), hint)
        })
    }
}

/// Reads a form; one that cannot be read is refused with a hint.
fn form(form: Result<Form<Fields>, FormRejection>) -> Result<Fields, ApiError> {
    let refused = |error: FormRejection| {
        let hint = "load the page again, and send its form";
        ApiError::new(ErrorKind::Invalid, "the form cannot be read", hint).because(&error)
    };
    form.map(|Form(fields)| fields).map_err(refused)
}

/// The query of a page that is loaded after a change.
#[derive(Debug, Default, serde::Deserialize)]
struct ChangedQuery {
    #[serde(default)]
    changed: Option<String>,
}

/// Returns whether a page is loaded after a change.
fn is_changed(query: Result<Query<ChangedQuery>, QueryRejection>) -> bool {
    query.is_ok_and(|Query(query)| query.changed.is_some())
}

async fn wrong_method(api: Api) -> Shown {
    let error = ApiError::new(
        ErrorKind::Invalid,
        "this page cannot be asked for in this way",
        "start at the list of VMs",
    );
    Shown::with_status(405, api.frame().await.error(405, &error))
}

/// The period in the query of a page.
#[derive(Debug, Default, serde::Deserialize)]
struct PeriodQuery {
    #[serde(default)]
    period: Option<String>,
}

/// Returns the period that a query names; five minutes without one.
fn period(query: Result<Query<PeriodQuery>, QueryRejection>) -> Result<Period, ApiError> {
    let Query(PeriodQuery { period }) = query.map_err(|error| bad_period(&error))?;
    period_of(period.as_deref())
}

/// Returns the period with this text; five minutes without one.
fn period_of(text: Option<&str>) -> Result<Period, ApiError> {
    Period::parse_or_usual(text).map_err(|error| bad_period(&error))
}

fn bad_period(error: &(dyn std::error::Error + 'static)) -> ApiError {
    let hint = "write a number with s, m, h or d: period=5m";
    ApiError::new(ErrorKind::Invalid, "the period cannot be read", hint).because(error)
}

impl FromRequestParts<Router> for Api {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, router: &Router) -> Result<Self, Self::Rejection> {
        let caller = parts.extensions.get::<ConnectInfo<Caller>>().map(|info| info.0.clone());
        Ok(Self::new(router.clone(), caller.expect("the listener notes the caller of each connection")))
    }
}

#[cfg(test)]
mod tests;
