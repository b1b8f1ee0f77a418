//! Requests to the API from within the daemon, in the name of a caller.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Method, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use taut_api::error::ErrorKind;
use taut_api::route::DaemonInfo;
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
        self.send(Method::GET, path, Vec::new()).await
    }

    /// Changes a resource.
    pub(super) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        change: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(change).map_err(|error| unreadable(path, &error))?;
        self.send(Method::PATCH, path, body).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ApiError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .extension(ConnectInfo(self.caller.clone()))
            .body(Body::from(body))
            .map_err(|error| unreadable(path, &error))?;
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
        Frame { hostname, version: version.to_owned(), uid: self.caller.uid(), role }
    }
}

fn unreadable(path: &str, error: &(dyn std::error::Error + 'static)) -> ApiError {
    let message = format!("the answer of {path} cannot be read");
    ApiError::new(ErrorKind::Internal, message, "see the cause and the daemon's log").because(error)
}
