//! Answers to requests over TCP: bounds first, then who asks, then the API or the page.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::event::Level;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::addresses::{Addresses, Key};
use super::bucket::{Bucket, Limit};
use super::login;
use super::sessions::Sessions;
use crate::access::caller::Caller;
use crate::access::places::{self, Places};
use crate::access::refusals::Reason;
use crate::access::sites::{self, Way};
use crate::access::tokens::{self, Hash, Token, now_ms};
use crate::http::{self, App};
use crate::page;

/// Longest body in bytes.
const MOST_BODY: usize = 1 << 20;
/// Time in which a body has to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Rate of requests with one token.
const OF_TOKEN: Limit = Limit { burst: 100.0, per_second: 50.0 };
/// Maximum number of requests that are worked on at a time.
const WORKING: usize = 16;
/// Maximum number of those with the same token.
const WORKING_OF_TOKEN: usize = 4;
/// Pause before the answer to a request beyond a rate. A connection has one request at a time, so
/// it bounds what a flood costs.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Pause before the answer to a wrong token of an address that has shown many.
const SLOW_DOWN: Duration = Duration::from_secs(1);

/// The client of one connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    /// Key of its bounds.
    pub(super) key: Key,
    /// Hash of the token that was last shown on this connection.
    shown: Mutex<Option<Hash>>,
}

/// A request that is not carried out.
#[derive(Debug)]
pub(super) struct Refusal {
    reason: Reason,
    error: ApiError,
    /// Time to wait before repeating the request.
    wait: Option<Duration>,
}

/// State behind all connections.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) app: Arc<App>,
    api: Router,
    page: Router,
    addresses: Mutex<Addresses>,
    sessions: Mutex<Sessions>,
    /// Bounds of each token, for as long as it exists.
    tokens: Mutex<HashMap<Hash, OfToken>>,
    working: Arc<Semaphore>,
}

/// Bounds of one token.
#[derive(Debug)]
struct OfToken {
    requests: Bucket,
    working: Arc<Semaphore>,
}

impl Client {
    pub(super) fn new(address: IpAddr, key: Key) -> Self {
        Self { address, key, shown: Mutex::new(None) }
    }

    /// Returns whether its last token is still valid, if it has shown one.
    pub(super) fn is_welcome(&self, all: &[Token]) -> bool {
        lock(&self.shown).is_none_or(|hash| tokens::with_hash(all, &hash, now_ms()).is_some())
    }
}

impl Refusal {
    pub(super) fn new(reason: Reason, error: ApiError) -> Self {
        Self { reason, error, wait: None }
    }

    /// Returns the error.
    pub(super) fn error(&self) -> &ApiError {
        &self.error
    }

    fn too_many(reason: Reason, what: &str, wait: Duration) -> Self {
        let seconds = retry_after(wait);
        let hint = format!("wait {seconds} s (Retry-After), and ask less often");
        Self { reason, error: ApiError::new(ErrorKind::TooMany, what, hint), wait: Some(wait) }
    }
}

/// Returns a time in whole seconds, at least one.
fn retry_after(wait: Duration) -> u64 {
    wait.as_secs_f64().ceil().max(1.0) as u64
}

impl Service {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self {
            api: http::router(app.clone()),
            page: page::router(&app, Way::Tls),
            app,
            addresses: Mutex::new(Addresses::new()),
            sessions: Mutex::default(),
            tokens: Mutex::default(),
            working: Arc::new(Semaphore::new(WORKING)),
        }
    }

    /// Counts a new connection; `None` if it has to be closed.
    pub(super) fn open(&self, address: IpAddr) -> Option<Key> {
        let key = lock(&self.addresses).open(address, Instant::now());
        if key.is_none() {
            self.note(Reason::Connections, address);
        }
        key
    }

    /// Takes note of a connection's end.
    pub(super) fn close(&self, key: Key) {
        lock(&self.addresses).close(key);
    }

    /// Counts a refusal, and raises an event now and then.
    pub(super) fn note(&self, reason: Reason, from: IpAddr) {
        if let Some(message) = self.app.remote.refusals.note(reason, from, Instant::now()) {
            self.app.store.event(Level::Warning, "daemon", "remote.refused", &message);
        }
    }

    /// Answers one request.
    pub(super) async fn answer(&self, peer: &Client, request: Request<Body>) -> Response {
        let is_api = is_api(request.uri().path());
        match self.try_answer(peer, request).await {
            Ok(response) => response,
            Err(Refusal { reason, error, wait }) => {
                self.note(reason, peer.address);
                if matches!(reason, Reason::AddressRate | Reason::TokenRate) {
                    sleep(REFUSED_PAUSE).await;
                }
                refused(&error, wait, is_api)
            }
        }
    }

    async fn try_answer(&self, peer: &Client, request: Request<Body>) -> Result<Response, Refusal> {
        lock(&self.addresses).request(peer.key, Instant::now()).map_err(|wait| {
            Refusal::too_many(Reason::AddressRate, "this address sends too many requests", wait)
        })?;
        sites::check(Way::Tls, request.method(), request.headers())
            .map_err(|error| Refusal::new(Reason::Origin, error))?;
        match request.uri().path() {
            taut_page::view::login::LOGIN => login::answer(self, peer, request).await,
            taut_page::frame::LOGOUT if request.method() == Method::POST => {
                Ok(login::out(&mut lock(&self.sessions), cookies(request.headers())))
            }
            path if path.starts_with("/assets/") => {
                // Assets say nothing about the host, so they need no token.
                let Ok(response) = self.page.clone().oneshot(without_body(request)).await;
                Ok(response)
            }
            path if is_api(path) => {
                let token = self.shown_token(peer, request.headers()).await?;
                self.pass_on(peer, &token, &self.api, request).await
            }
            _ => {
                if let Some(token) = self.session(request.headers()) {
                    return self.pass_on(peer, &token, &self.page, request).await;
                }
                self.note(Reason::Unauthenticated, peer.address);
                Ok(login::page(StatusCode::UNAUTHORIZED, None))
            }
        }
    }

    /// Returns the token that a request shows.
    async fn shown_token(&self, peer: &Client, headers: &HeaderMap) -> Result<Token, Refusal> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            let error = ApiError::new(
                ErrorKind::Unauthenticated,
                "the request shows no token",
                "send `Authorization: Bearer TOKEN`; `taut token create` on the host makes one",
            );
            return Err(Refusal::new(Reason::Unauthenticated, error));
        };
        self.find(peer, bearer(value).unwrap_or_default()).await
    }

    /// Finds the token with this text. Addresses that show many wrong ones get slow answers.
    pub(super) async fn find(&self, peer: &Client, text: &[u8]) -> Result<Token, Refusal> {
        if let Some(token) = tokens::find(&self.app.store.tokens(), text, now_ms()) {
            return Ok(token.clone());
        }
        let failed = lock(&self.addresses).failure(peer.key, Instant::now());
        if let Err(wait) = failed {
            sleep(SLOW_DOWN).await;
            let what = "this address has shown too many tokens that are not valid";
            return Err(Refusal::too_many(Reason::Attempts, what, wait));
        }
        let error = ApiError::new(
            ErrorKind::Unauthenticated,
            "this token is not valid: it is wrong, has expired or was deleted",
            "ask an administrator for a new one: taut token create NAME --role view",
        );
        Err(Refusal::new(Reason::Unauthenticated, error))
    }

    /// Returns the token of a browser's session.
    fn session(&self, headers: &HeaderMap) -> Option<Token> {
        let hash = lock(&self.sessions).token_of(cookies(headers), Instant::now())?;
        tokens::with_hash(&self.app.store.tokens(), &hash, now_ms()).cloned()
    }

    /// Begins a session. Returns the header that sets its cookie.
    pub(super) fn begin_session(&self, token: &Token) -> std::io::Result<String> {
        lock(&self.sessions).begin(token, &self.app.store.tokens(), Instant::now())
    }

    /// Hands a request to a router, in the name of the token's holder.
    async fn pass_on(
        &self,
        peer: &Client,
        token: &Token,
        router: &Router,
        request: Request<Body>,
    ) -> Result<Response, Refusal> {
        *lock(&peer.shown) = Some(token.hash);
        self.app.remote.used.note(&self.app.store.tokens(), token.hash, now_ms());
        let working = self.count(token)?;
        let (mut parts, body) = request.into_parts();
        let places = Places::new(working, self.working.clone());
        // The token's own place comes first: it bounds the bodies in memory, and a slow body takes
        // no place from other tokens.
        places.take_of_token().await.map_err(busy)?;
        let body = read_body(&parts.headers, body, MOST_BODY).await?;
        places.take_of_all().await.map_err(busy)?;
        // A request that waits for something gives its places to others meanwhile.
        parts.extensions.insert(places);
        parts.extensions.insert(ConnectInfo(Caller::of_token(token.name.clone(), token.role, peer.address)));
        let Ok(response) = router.clone().oneshot(Request::from_parts(parts, Body::from(body))).await;
        Ok(response)
    }

    /// Counts a request with a token. Returns the places of its requests.
    fn count(&self, token: &Token) -> Result<Arc<Semaphore>, Refusal> {
        let (mut bounds, now) = (lock(&self.tokens), Instant::now());
        if !bounds.contains_key(&token.hash) {
            let all = self.app.store.tokens();
            bounds.retain(|hash, _| all.iter().any(|token| token.hash == *hash));
        }
        let of_token = bounds.entry(token.hash).or_insert_with(|| OfToken {
            requests: Bucket::full(OF_TOKEN, now),
            working: Arc::new(Semaphore::new(WORKING_OF_TOKEN)),
        });
        of_token.requests.take(OF_TOKEN, now).map_err(|wait| {
            Refusal::too_many(Reason::TokenRate, "too many requests show this token", wait)
        })?;
        Ok(of_token.working.clone())
    }
}

/// Returns the refusal of a request that has got no place in time.
fn busy(error: ApiError) -> Refusal {
    Refusal { reason: Reason::Busy, error, wait: Some(places::PATIENCE) }
}

/// Reads a body that has to be short and to arrive in time.
pub(super) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<axum::body::Bytes, Refusal> {
    let too_large = || {
        let message = format!("the body exceeds {most} bytes, or was broken off");
        Refusal::new(Reason::TooLarge, ApiError::new(ErrorKind::Invalid, message, "send a smaller body"))
    };
    let stated = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if stated.is_some_and(|length: u64| length > most as u64) {
        return Err(too_large());
    }
    let slow = |_| {
        let message = format!("the body did not arrive within {BODY_TIME:?}");
        let error = ApiError::new(ErrorKind::Invalid, message, "send the request without pauses");
        Refusal::new(Reason::Slow, error)
    };
    let read = timeout(BODY_TIME, to_bytes(body, most)).await.map_err(slow)?;
    read.map_err(|_| too_large())
}

/// Returns whether a path belongs to the API; the others are those of the page.
fn is_api(path: &str) -> bool {
    path.starts_with("/v1/") || path == taut_api::path::METRICS || path == taut_api::path::OPENAPI
}

/// Returns the token in the value of an `Authorization` header.
fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Returns the cookies in the first `Cookie` header of a request. Browsers send one.
fn cookies(headers: &HeaderMap) -> &str {
    headers.get(header::COOKIE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn without_body(request: Request<Body>) -> Request<Body> {
    request.map(|_| Body::empty())
}

/// Builds the response to a refused request: JSON for the API, HTML for the page.
fn refused(error: &ApiError, wait: Option<Duration>, is_api: bool) -> Response {
    let mut response = if is_api {
        let status = StatusCode::from_u16(error.kind.http_status());
        (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(error)).into_response()
    } else {
        page::error(error)
    };
    if let Some(wait) = wait {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after(wait)));
    }
    if error.kind == ErrorKind::Unauthenticated {
        let asks = HeaderValue::from_static("Bearer realm=\"taut\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
    }
    response
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
