//! Requests to the API from within the daemon, in the name of a caller.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use taut_api::error::ErrorKind;
use taut_api::route::DaemonInfo;
use taut_api::statistics::Series;
use taut_api::{ApiError, path};
use taut_page::frame::Frame;
use tower::ServiceExt as _;

use crate::access::caller::Caller;

/// Longest answer that is read.
const MAX_ANSWER: usize = 64 << 20;

/// The API, as one caller may use it.
#[derive(Debug)]
pub(super) struct Api {
    router: Router,
    caller: Caller,
}

impl Api {
    pub(super) fn new(router: Router, caller: Caller) -> Self {
        Self { router, caller }
    }

    /// Asks for a resource.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.send(Method::GET, path, None, Vec::new()).await
    }

    /// Changes this revision of a document.
    pub(super) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        revision: u64,
        change: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(change).map_err(|error| unreadable(path, &error))?;
        self.send(Method::PATCH, path, Some(revision), body).await
    }

    /// Replaces this revision of a document.
    pub(super) async fn replace<T: DeserializeOwned>(
        &self,
        path: &str,
        revision: u64,
        document: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(document).map_err(|error| unreadable(path, &error))?;
        self.send(Method::PUT, path, Some(revision), body).await
    }

    /// Asks for a series; there is none without samples.
    pub(super) async fn series(&self, query: &str) -> Result<Option<Series>, ApiError> {
        match self.get(&format!("{}?{query}", path::SERIES)).await {
            Ok(series) => Ok(Some(series)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        revision: Option<u64>,
        body: Vec<u8>,
    ) -> Result<T, ApiError> {
        let mut request =
            Request::builder().method(method).uri(path).extension(ConnectInfo(self.caller.clone()));
        if let Some(revision) = revision {
            request = request.header(header::IF_MATCH, format!("\"{revision}\""));
        }
        let request = request.body(Body::from(body)).map_err(|error| unreadable(path, &error))?;
        let Ok(response) = self.router.clone().oneshot(request).await;
        let is_success = response.status().is_success();
        let bytes =
            to_bytes(response.into_body(), MAX_ANSWER).await.map_err(|error| unreadable(path, &error))?;
        if is_success {
            serde_json::from_slice(&bytes).map_err(|error| unreadable(path, &error))
        } else {
            let error = serde_json::from_slice(&bytes);
            Err(error.unwrap_or_else(|error| unreadable(path, &error)))
        }
    }

    /// Returns the facts in the frame of each page, as far as the caller may know them.
    pub(super) async fn frame(&self) -> Frame {
        let daemon: Option<DaemonInfo> = self.get(path::DAEMON).await.ok();
        let role = daemon.and_then(|daemon| daemon.caller).map(|caller| caller.role);
        let (hostname, version) = match role {
            Some(_) => {
                (rustix::system::uname().nodename().to_string_lossy().into_owned(), env!("CARGO_PKG_VERSION"))
            }
            None => (String::new(), ""),
        };
        Frame {
            hostname,
            version: version.to_owned(),
            user: self.caller.describe(),
            role,
            can_log_out: self.caller.token().is_some(),
        }
    }
}

fn unreadable(path: &str, error: &(dyn std::error::Error + 'static)) -> ApiError {
    let message = format!("the answer of {path} cannot be read");
    ApiError::new(ErrorKind::Internal, message, "see the cause and the daemon's log").because(error)
}
