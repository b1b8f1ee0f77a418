//! Protection of the page's user from other sites in the same browser: requests that may come from
//! such a site are refused, and the headers of each answer keep its content to this page.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use taut_page::frame::{CONTENT_SECURITY_POLICY, Frame};

use super::shown::Shown;
use crate::access::sites::{self, Way};

/// Headers of every answer.
const HEADERS: [(&str, &str); 5] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    // With `no-referrer`, browsers would send forms with `Origin: null`.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Refuses requests of other sites, and protects each answer.
pub(super) async fn pass(State(way): State<Way>, request: Request, next: Next) -> Response {
    protect(match sites::check(way, request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => Shown::error(&Frame::default(), &error).into_response(),
    })
}

/// Adds the headers that protect an answer.
pub(crate) fn protect(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
