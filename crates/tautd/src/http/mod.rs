//! The HTTP API: documents in, documents with status out. The handlers write the store and wake the
//! reconcile loop. They change nothing on the host, so that tests need no host.

mod audit;
mod body;
mod capture;
mod check;
mod daemon;
mod documents;
mod events;
mod gate;
mod host;
mod kvm;
mod metrics;
mod openapi;
mod patch;
mod pnics;
mod ports;
mod refusal_events;
mod resources;
mod serve;
mod statistics;
mod table;
pub(crate) mod threads;
mod tokens;
mod vmci;
mod vms;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use taut_api::audit::AuditedDocument;
use taut_api::event::Level;
use taut_api::token::RemoteInfo;
use taut_api::{ApiError, Name};

use crate::access::audit::{Audit, digest};
use crate::access::refusals::RefusalCounts;
use crate::access::rights::Rights;
use crate::access::roles::Roles;
use crate::access::sites::{self, Way};
use crate::access::tokens::LastUse;
use crate::board::{Board, Seen};
use crate::capture::Captures;
use crate::fabric::counters::Counters;
use crate::inbox::{Inbox, Message};
use crate::statistics::Statistics;
use crate::store::{Change, Kind, State, Store};

pub(crate) use check::HostChecks;
pub(crate) use openapi::document as openapi_document;
pub(crate) use refusal_events::RefusalEvents;
pub(crate) use serve::{protect, read_roles_at_hangup, serve};

use body::Failure;
use gate::Written;

/// State that handlers work on.
#[derive(Debug)]
pub(crate) struct App {
    /// Documents and events.
    pub(crate) store: Arc<Store>,
    /// State as last observed.
    pub(crate) board: Arc<Board>,
    /// The fabric's counters.
    pub(crate) counters: Arc<Counters>,
    /// Samples of the counters.
    pub(crate) statistics: Arc<Statistics>,
    /// The reconcile loop's inbox.
    pub(crate) inbox: Inbox,
    /// Refused changes that were listed as events lately.
    pub(crate) refusals: RefusalEvents,
    /// Reports of the host's check that are still good.
    pub(crate) checks: HostChecks,
    /// Roles of callers.
    pub(crate) roles: Arc<Roles>,
    /// Record of all changes.
    pub(crate) audit: Audit,
    /// Number of requests that were refused because of their caller's role.
    pub(crate) forbidden: AtomicU64,
    /// Access over TCP.
    pub(crate) remote: RemoteState,
    /// Captures of ports that run.
    pub(crate) captures: Captures,
    /// Parent of the VMs' run directories.
    pub(crate) run_dir: PathBuf,
    /// Directory of the store and of the ledger of changed settings.
    pub(crate) state_dir: PathBuf,
}

/// State of the access over TCP that the API shows.
#[derive(Debug, Default)]
pub(crate) struct RemoteState {
    /// Address and certificate; `None` if it is off.
    pub(crate) info: Option<RemoteInfo>,
    /// Counts of what was refused.
    pub(crate) refusals: RefusalCounts,
    /// Last use of each token.
    pub(crate) used: LastUse,
}

type Shared = Arc<App>;

/// Returns the router of the API for its Unix socket, which is not for browsers.
pub(crate) fn socket_router(app: Shared) -> Router {
    router(app).layer(from_fn(refuse_browsers))
}

async fn refuse_browsers(request: Request, next: Next) -> Response {
    match sites::check(Way::Api, request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => Failure::from(error).into_response(),
    }
}

/// Returns the router with all paths of the API.
pub(crate) fn router(app: Shared) -> Router {
    let mut router = Router::new();
    for route in table::routes() {
        router = router.route(route.path, route.gated(&app));
    }
    router
        .route_layer(from_fn_with_state(app.clone(), refusal_events::record))
        .fallback(body::unknown_path)
        .method_not_allowed_fallback(body::wrong_method)
        .with_state(app)
}

impl App {
    /// Returns the documents and the last observed state, each as a consistent copy.
    fn look(&self) -> (Arc<State>, Seen) {
        (self.store.state(), self.board.lock().clone())
    }

    /// Writes one document, logs the write, and wakes the loop. The write runs on a thread that may
    /// block on the disk.
    async fn write<F>(self: &Arc<Self>, decide: F) -> Result<Arc<State>, Failure>
    where
        F: FnOnce(&State) -> Result<Change, ApiError> + Send + 'static,
    {
        self.write_for(None, decide).await
    }

    /// Like [`App::write`]. A VM that is written gets this owner, if one is given.
    async fn write_for<F>(self: &Arc<Self>, owner: Option<Rights>, decide: F) -> Result<Arc<State>, Failure>
    where
        F: FnOnce(&State) -> Result<Change, ApiError> + Send + 'static,
    {
        let (app, audited) = (self.clone(), Written::of_request());
        let written = tokio::task::spawn_blocking(move || {
            let (mut subject, mut what) = (String::new(), String::new());
            let mut verb = "written";
            let mut texts = (None, None);
            let state = app.store.write_for(owner, |state| {
                let change = decide(state)?;
                texts = change.texts(&state.desired);
                subject = format!("{}/{}", change.kind().as_str(), change.name());
                what = change.describe(&state.desired);
                if change.is_deletion() {
                    verb = "deleted";
                }
                Ok(change)
            })?;
            let hash = |text: Option<String>| text.map(|text| digest(text.as_bytes()));
            audited.note(AuditedDocument {
                subject: subject.clone(),
                revision: state.revision,
                before: hash(texts.0),
                after: hash(texts.1),
            });
            let kind = subject.split('/').next().unwrap_or_default();
            let message = format!("{what} (revision {})", state.revision);
            app.store.event(Level::Info, &subject, &format!("{kind}.{verb}"), &message);
            app.inbox.send(Message::Wake);
            Ok(state)
        });
        let written: Result<_, ApiError> =
            written.await.map_err(|error| Failure::internal("the write was interrupted", &error))?;
        Ok(written?)
    }
}

/// Returns the error for a name that does not exist.
fn not_found(kind: Kind, name: &Name) -> ApiError {
    let command = match kind {
        Kind::Vm => "taut vm list",
        Kind::VSwitch => "taut vswitch list",
        Kind::PortGroup => "taut portgroup list",
        Kind::Netns => "taut netns list",
        Kind::External => "taut port list",
        Kind::Netdev => "taut netdev list",
        Kind::Uplink => "taut uplink list",
        Kind::Pnic => "taut pnic list",
        Kind::Host => "taut host settings",
    };
    ApiError::new(
        taut_api::error::ErrorKind::NotFound,
        format!("there is no {} `{name}`", kind.noun()),
        format!("`{command}` shows those that exist"),
    )
}

/// The API with a store of its own, for tests.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::tests::{DEFINER, MICRO, Server, VIEWER, connected};
}

#[cfg(test)]
mod tests;
