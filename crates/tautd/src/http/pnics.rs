//! `/v1/pnics`: network cards of the host, and their settings (row VN-6).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use taut_api::error::ErrorKind;
use taut_api::pnic::{PnicFacts, PnicSettings, PnicStatus};
use taut_api::route::Pnic;
use taut_api::{ApiError, Document, Name, path};
use taut_host::observe::cards;
use taut_plan::Desired;
use taut_plan::admission::network_io::admit_set_speed;
use taut_plan::admission::pnics::admit_pnic;
use taut_plan::admission::uplinks::Candidate;

use super::Shared;
use super::body::{Body, Condition, Failure, Named};
use super::documents::{self, Stored};
use crate::board::Seen;
use crate::store::{Change, Kind, State as Documents};
use crate::{interface, status};

struct Pnics;

impl Stored for Pnics {
    type Spec = PnicSettings;
    const KIND: Kind = Kind::Pnic;

    fn specs(desired: &Desired) -> &BTreeMap<Name, PnicSettings> {
        &desired.pnics
    }

    fn change(name: Name, spec: Option<PnicSettings>) -> Change {
        Change::Pnic(name, spec)
    }

    fn admit(desired: &Desired, name: &Name, spec: &PnicSettings) -> Result<(), ApiError> {
        admit_set_speed(desired, name, spec, &interface::speed)
    }
}

/// Lists the physical network cards of the host, and other interfaces that are uplinks or have
/// settings.
#[utoipa::path(get, path = path::PNICS, tag = "Host",
    responses((status = 200, body = [Document<PnicSettings, PnicStatus>]), (status = 503, body = ApiError)))]
pub(super) async fn list_pnics(State(app): State<Shared>) -> Result<Json<Vec<Pnic>>, Failure> {
    blocking(move || {
        let (state, seen) = app.look();
        let Desired { uplinks, pnics, .. } = &state.desired;
        let set = pnics.iter().filter(|(_, settings)| !settings.is_empty()).map(|(name, _)| name);
        let named = uplinks.keys().chain(set).cloned();
        let names: BTreeSet<Name> = cards::physical().into_iter().chain(named).collect();
        names.iter().map(|name| document(&state, &seen, name)).collect()
    })
    .await
}

/// Shows a network card of the host: link, speed, driver, settings and their limits, statistics.
/// Any interface can be shown.
#[utoipa::path(get, path = path::PNIC.pattern(), tag = "Host",
    params(("name" = Name, Path, description = "Name of the network interface")),
    responses((status = 200, body = Document<PnicSettings, PnicStatus>), (status = 404, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn show_pnic(State(app): State<Shared>, Named(name): Named) -> Result<Json<Pnic>, Failure> {
    blocking(move || {
        let (state, seen) = app.look();
        let pnic = document(&state, &seen, &name)?;
        if pnic.status.card.is_none() && pnic.revision == 0 {
            return Err(ApiError::new(
                ErrorKind::NotFound,
                format!("this host has no network interface `{name}`"),
                "`taut pnic list` shows its cards, and `ip -brief link` all interfaces",
            ));
        }
        Ok(pnic)
    })
    .await
}

/// Sets a network card, at once. Settings that are left out are given back as they were before.
/// With `If-None-Match: *` only a card without settings, with `If-Match: "REVISION"` only changes
/// that revision.
#[utoipa::path(put, path = path::PNIC.pattern(), tag = "Host", request_body = PnicSettings,
    params(("name" = Name, Path, description = "Name of the network interface")),
    responses((status = 200, body = Document<PnicSettings, PnicStatus>), (status = 400, body = ApiError),
        (status = 409, body = ApiError), (status = 412, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn put_pnic(
    State(app): State<Shared>,
    Named(name): Named,
    condition: Condition,
    Body(spec): Body<PnicSettings>,
) -> Result<Json<Pnic>, Failure> {
    // A driver may keep us waiting, which no other write should do.
    let card = name.clone();
    let Json((found, facts)) = blocking(move || look(&card)).await?;
    let admit = move |desired: &Desired, name: &Name, spec: &PnicSettings| {
        admit_pnic(name, spec, desired.pnics.get(name), found.as_ref(), &facts)
    };
    let state = documents::write_if::<Pnics>(&app, name.clone(), condition, spec, admit).await?;
    blocking(move || {
        let seen = app.board.lock().clone();
        document(&state, &seen, &name)
    })
    .await
}

/// Gives all settings of a network card back as they were before.
#[utoipa::path(delete, path = path::PNIC.pattern(), tag = "Host",
    params(("name" = Name, Path, description = "Name of the network interface")),
    responses((status = 204), (status = 404, body = ApiError), (status = 503, body = ApiError)))]
pub(super) async fn delete_pnic(
    State(app): State<Shared>,
    Named(name): Named,
) -> Result<StatusCode, Failure> {
    documents::delete::<Pnics>(app, name).await
}

/// Answers a request on a thread that may wait: the kernel has one lock for all changes of
/// interfaces, and a driver may hold it for seconds.
async fn blocking<T: Send + 'static>(
    answer: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<Json<T>, Failure> {
    let answered = tokio::task::spawn_blocking(answer).await;
    let answered =
        answered.map_err(|error| Failure::internal("the look at the cards was interrupted", &error));
    Ok(Json(answered??))
}

fn document(state: &Documents, seen: &Seen, name: &Name) -> Result<Pnic, ApiError> {
    let revision = state.revision_of(Kind::Pnic, name);
    let is_settled = revision <= seen.reconciled;
    Ok(Document {
        name: name.clone(),
        revision,
        spec: state.desired.pnics.get(name).cloned().unwrap_or_default(),
        status: status::pnic(&state.desired, seen, name, facts(name)?, is_settled),
    })
}

/// Looks at an interface whose settings are about to be written: what the host has under its name,
/// and what its driver tells if it is a card.
fn look(name: &Name) -> Result<(Option<Candidate>, PnicFacts), ApiError> {
    let found = interface::candidate(name)?;
    if !found.as_ref().is_some_and(|found| found.is_ethernet) {
        return Ok((found, PnicFacts::default()));
    }
    let facts = cards::complete_facts(name).map_err(|error| unreadable(name, &error))?;
    Ok((found, facts.unwrap_or_default()))
}

/// Reads what is known of a card.
fn facts(name: &Name) -> Result<Option<PnicFacts>, ApiError> {
    cards::facts(name).map_err(|error| unreadable(name, &error))
}

fn unreadable(name: &Name, error: &io::Error) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("the network card `{name}` cannot be looked at"),
        "see the cause, and try again",
    )
    .because(error)
}
