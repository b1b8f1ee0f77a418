//! Extractors for bodies and names, and errors as JSON.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header, request::Parts};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use taut_api::error::ErrorKind;
use taut_api::{ApiError, Name};

use crate::store::Kind;

/// Longest accepted body: a VM file with its envelope.
const MAX_BODY: usize = 4 << 20;

/// An error as an HTTP answer.
#[derive(Debug)]
pub(super) struct Failure(pub(super) ApiError);

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl Failure {
    /// Creates an internal error of the daemon.
    pub(super) fn internal(message: &str, cause: &(dyn std::error::Error + 'static)) -> Self {
        Self(ApiError::new(ErrorKind::Internal, message, "see the cause and the daemon's log").because(cause))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.0)).into_response()
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
            Failure(ApiError::new(ErrorKind::Invalid, message, "send a smaller body").because(&error))
        })?;
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            let message = format!("the body does not match this path: {error}");
            Failure(ApiError::new(ErrorKind::Invalid, message, "GET /openapi.json describes the body"))
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
            Failure(ApiError::new(ErrorKind::Invalid, error.to_string(), "correct the name in the path"))
        })?;
        Ok(Self(name))
    }
}

/// The header `If-None-Match: *`: create, do not replace.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnlyNew(pub(super) bool);

impl<S: Send + Sync> FromRequestParts<S> for OnlyNew {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(wants_new(&parts.headers)))
    }
}

fn wants_new(headers: &HeaderMap) -> bool {
    headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == "*")
}

impl OnlyNew {
    /// Refuses an existing document if only a new one was asked for.
    pub(super) fn check(self, exists: bool, kind: Kind, name: &Name) -> Result<(), ApiError> {
        if self.0 && exists { Err(exists_already(kind, name)) } else { Ok(()) }
    }
}

/// Returns the error for a name that is in use. The hint names the command that changes the
/// existing resource.
pub(super) fn exists_already(kind: Kind, name: &Name) -> ApiError {
    let hint = match kind {
        Kind::Vm => format!("`taut vm set {name}` changes it; or use another name"),
        Kind::PortGroup => format!("`taut portgroup set {name}` changes it; or use another name"),
        Kind::VSwitch => "use it as it is, or use another name; `taut vswitch list` shows all".to_owned(),
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
        Kind::Host => "`taut host set` changes the host's settings".to_owned(),
    };
    ApiError::new(ErrorKind::Conflict, format!("{} `{name}` exists already", kind.noun()), hint)
}

pub(super) async fn unknown_path(uri: Uri) -> Failure {
    Failure(ApiError::new(
        ErrorKind::NotFound,
        format!("unknown path `{}`", uri.path()),
        "GET /openapi.json lists all paths",
    ))
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Response {
    let error = ApiError::new(
        ErrorKind::Invalid,
        format!("`{}` does not support {method}", uri.path()),
        "GET /openapi.json lists the methods of each path",
    );
    (StatusCode::METHOD_NOT_ALLOWED, Json(error)).into_response()
}
