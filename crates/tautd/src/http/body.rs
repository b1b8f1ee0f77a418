//! Extractors for bodies, names and conditions, and errors as JSON.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header, request::Parts};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use taut_api::error::ErrorKind;
use taut_api::{ApiError, Name};

use crate::store::{Kind, State};

/// Longest accepted body: a VM file with its envelope.
const MAX_BODY: usize = 4 << 20;

/// An error as an HTTP answer. The answer also carries it as an extension, for the event log.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) error: ApiError,
    /// Name of the resource that the request is about, if the path does not have it.
    pub(super) about: Option<Name>,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self { error, about: None }
    }
}

impl Failure {
    /// Names the resource that the request is about.
    pub(super) fn about(self, name: Option<Name>) -> Self {
        Self { about: name, ..self }
    }

    /// Creates an internal error of the daemon.
    pub(super) fn internal(message: &str, cause: &(dyn std::error::Error + 'static)) -> Self {
        ApiError::new(ErrorKind::Internal, message, "see the cause and the daemon's log")
            .because(cause)
            .into()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.error.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self.error)).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A JSON body. The content type is ignored, because every body is JSON.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bytes = axum::body::to_bytes(request.into_body(), MAX_BODY).await.map_err(|error| {
            let message = format!("the body cannot be read or exceeds {MAX_BODY} bytes");
            ApiError::new(ErrorKind::Invalid, message, "send a smaller body").because(&error)
        })?;
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            let message = format!("the body does not match this path: {error}");
            ApiError::new(ErrorKind::Invalid, message, "GET /openapi.json describes the body")
        })?;
        Ok(Self(value))
    }
}

/// The name in a path.
#[derive(Debug)]
pub(super) struct Named(pub(super) Name);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let text = <Path<String> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let text = text.map_err(|error| Failure::internal("the path contains no name", &error))?.0;
        let name = text.parse::<Name>().map_err(|error| {
            ApiError::new(ErrorKind::Invalid, error.to_string(), "correct the name in the path")
        })?;
        Ok(Self(name))
    }
}

/// The conditions under which a document is written; none by default.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Condition {
    /// `If-None-Match: *`: create, do not replace.
    only_new: bool,
    /// `If-Match`: replace what exists, or has this revision.
    replaced: Option<Replaced>,
}

/// The document that a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaced {
    /// `*`: one of any revision.
    Any,
    /// `"REVISION"`: the one of this revision.
    Revision(u64),
}

impl<S: Send + Sync> FromRequestParts<S> for Condition {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let only_new = parts.headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == "*");
        Ok(Self { only_new, replaced: replaced(&parts.headers)? })
    }
}

fn replaced(headers: &HeaderMap) -> Result<Option<Replaced>, ApiError> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let replaced = text.and_then(|text| match text {
        "*" => Some(Replaced::Any),
        revision => revision.trim_matches('"').parse().ok().map(Replaced::Revision),
    });
    replaced.map(Some).ok_or_else(|| {
        let message = format!("If-Match: {value:?} is neither a revision nor `*`");
        ApiError::new(ErrorKind::Invalid, message, "write the number of the document's revision in quotes")
    })
}

impl Condition {
    /// Refuses the write of a document that does not meet the conditions.
    pub(super) fn check(self, documents: &State, kind: Kind, name: &Name) -> Result<(), ApiError> {
        let there = documents.revision_of(kind, name);
        if self.only_new && there > 0 {
            return Err(exists_already(kind, name));
        }
        let what = kind.noun();
        let (changed, hint) = match self.replaced {
            Some(_) if there == 0 => {
                (format!("{what} `{name}` does not exist, or no longer"), "leave `If-Match` out to create it")
            }
            Some(Replaced::Revision(read)) if read != there => (
                format!("{what} `{name}` has revision {there} and no longer {read}"),
                "read it again, and repeat the change",
            ),
            _ => return Ok(()),
        };
        Err(ApiError::new(ErrorKind::Changed, changed, hint))
    }
}

/// Returns the error for a name that is in use. The hint names the command that changes the
/// existing resource.
pub(super) fn exists_already(kind: Kind, name: &Name) -> ApiError {
    let hint = match kind {
        Kind::Vm => format!("`taut vm set {name}` changes it; or use another name"),
        Kind::PortGroup => format!("`taut portgroup set {name}` changes it; or use another name"),
        Kind::VSwitch => format!("`taut vswitch set {name}` changes it; or use another name"),
        Kind::Netns => {
            format!(
                "`taut netns set {name} --portgroup NAME` moves it to another port group; detach it first for \
                 another address (`taut netns detach {name}`), or give the new one another --name"
            )
        }
        Kind::External => format!(
            "`taut port set {name}` changes its port group and coalescing; detach it first for the rest \
             (`taut port detach {name}`), or use another name"
        ),
        Kind::Netdev => {
            format!("to move it to another port group: taut netdev set {name} --portgroup NAME")
        }
        Kind::Uplink => format!("to move it to another vSwitch: taut uplink set {name} --vswitch NAME"),
        Kind::Pnic => format!("`taut pnic set {name}` changes the card's settings"),
        Kind::Host => "`taut host set` changes the host's settings".to_owned(),
    };
    ApiError::new(ErrorKind::Conflict, format!("{} `{name}` exists already", kind.noun()), hint)
}

/// Returns the error for a query that cannot be read.
pub(super) fn bad_query(error: &(dyn std::error::Error + 'static), hint: &str) -> ApiError {
    ApiError::new(ErrorKind::Invalid, "the query cannot be read", hint).because(error)
}

pub(super) async fn unknown_path(uri: Uri) -> Failure {
    let message = format!("unknown path `{}`", uri.path());
    ApiError::new(ErrorKind::NotFound, message, "GET /openapi.json lists all paths").into()
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Response {
    let error = ApiError::new(
        ErrorKind::Invalid,
        format!("`{}` does not support {method}", uri.path()),
        "GET /openapi.json lists the methods of each path",
    );
    (StatusCode::METHOD_NOT_ALLOWED, Json(error)).into_response()
}
