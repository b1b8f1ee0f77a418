//! The gate before each handler: the caller's role, and the audit record.

use std::future::Future;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use taut_api::ApiError;
use taut_api::audit::{AuditOutcome, AuditedDocument};
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::role::Role;

use super::Shared;
use super::body::Failure;
use crate::access::audit::{Asked, outcome_now};
use crate::access::caller::Caller;

/// Longest path that an error quotes, in characters.
const MOST_QUOTED: usize = 100;

tokio::task_local! {
    /// The document that the present request has written.
    static WRITTEN: Written;
}

/// The gate of one route.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) app: Shared,
    /// Role that a caller needs.
    pub(super) role: Role,
    /// Requests are recorded although they change nothing.
    pub(super) is_recorded: bool,
    /// Requests over TCP are refused.
    pub(super) refuses_tcp: bool,
}

/// Place for the document that a request has written. A request writes one at most.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<Mutex<Option<AuditedDocument>>>);

impl Written {
    /// Returns the place of the request that the calling task works on.
    pub(super) fn of_request() -> Self {
        WRITTEN.try_with(Clone::clone).unwrap_or_default()
    }

    /// Notes the document.
    pub(super) fn note(&self, document: AuditedDocument) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(document);
    }

    fn take(&self) -> Option<AuditedDocument> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Lets a request pass if its caller has the role. A change is recorded before it is made, and its
/// outcome before it is answered. So is a request to read what is not for everybody.
pub(super) async fn pass(
    State(Gate { app, role, is_recorded, refuses_tcp }): State<Gate>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let has = caller.role(&app.roles);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let asked = || Asked::now(caller.for_audit(has), method.as_str(), &path);
    if has < Some(role) {
        let error = app.roles.refusal(&caller, role, &format!("{method} {}", quoted(&path)));
        refuse(&app, asked(), error).await
    } else if refuses_tcp && caller.token().is_some() {
        let error = ApiError::new(
            ErrorKind::Forbidden,
            format!("{method} {} is not possible over TCP", quoted(&path)),
            "do it on the host: it opens a file there, for which a user has to have the rights",
        );
        refuse(&app, asked(), error).await
    } else if !is_recorded && matches!(method, Method::GET | Method::HEAD) {
        next.run(request).await
    } else {
        let asked = asked();
        // A client that leaves does not keep the outcome of its request from being recorded.
        let change = tokio::spawn(record(app, asked, async move { next.run(request).await }));
        change.await.unwrap_or_else(|error| panicked(&error))
    }
}

/// Returns the beginning of a path.
fn quoted(path: &str) -> String {
    path.chars().take(MOST_QUOTED).collect()
}

/// Counts and records a request that is refused because of its caller's role.
async fn refuse(app: &Shared, asked: Asked, error: ApiError) -> Response {
    app.forbidden.fetch_add(1, Relaxed);
    let outcome = outcome_now(error.kind.http_status(), Some(&error.message));
    if let Err(error) = app.audit.refused(asked, outcome).await {
        tracing::warn!(%error, "a refused request is not in the audit record");
    }
    let mut response = Failure::from(error).into_response();
    // It is no event: whoever may do nothing cannot fill the event log either.
    response.extensions_mut().remove::<Failure>();
    response
}

/// Makes a change between the records of its request and of its outcome.
async fn record(
    app: Shared,
    asked: Asked,
    change: impl Future<Output = Response> + Send + 'static,
) -> Response {
    let seq = match app.audit.request(asked).await {
        Ok(seq) => seq,
        Err(error) => return Failure::from(error).into_response(),
    };
    let written = Written::default();
    let made = tokio::spawn(WRITTEN.scope(written.clone(), change)).await;
    let response = made.unwrap_or_else(|error| panicked(&error));
    if let Err(error) = app.audit.outcome(seq, outcome(&response, written.take())).await {
        let message = format!("the outcome of change {seq} is not in the audit record: {}", error.message);
        app.store.event(Level::Error, "daemon", "audit.incomplete", &message);
    }
    response
}

fn outcome(response: &Response, document: Option<AuditedDocument>) -> AuditOutcome {
    let failure = response.extensions().get::<Failure>();
    let error = failure.map(|failure| failure.error.message.as_str());
    AuditOutcome { document, ..outcome_now(response.status().as_u16(), error) }
}

fn panicked(error: &tokio::task::JoinError) -> Response {
    Failure::internal("the request's handler ended early", error).into_response()
}
