//! Protection of the page's user from other sites in the same browser.
//!
//! There is no cookie or token: whoever reaches the page's socket through `ssh -L` acts as its
//! user. So any other site that the browser shows may try to send requests there.
//!
//! - A request that changes something is refused if `Origin` or `Sec-Fetch-Site` names another
//!   site. Programs other than browsers send neither.
//! - `Host` must be an IP address or `localhost`. Otherwise a site could have its own name resolved
//!   to the local address, and would count as the page's origin (DNS rebinding).

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_page::frame::{CONTENT_SECURITY_POLICY, Frame};

use super::shown::Shown;

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
pub(super) async fn pass(request: Request, next: Next) -> Response {
    let mut response = match check(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(message) => {
            let hint = "open the page at http://localhost:PORT, the local end of ssh -L";
            let error = ApiError::new(ErrorKind::Forbidden, message, hint);
            Shown::error(&Frame::default(), &error).into_response()
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn check(method: &Method, headers: &HeaderMap) -> Result<(), &'static str> {
    let only = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().map(HeaderValue::as_bytes);
        if values.next().is_some() { Err("a header occurs twice") } else { Ok(first) }
    };
    let host = only("host")?.ok_or("the request names no host")?;
    if !is_local(host) {
        return Err("the page answers only under an IP address or as localhost");
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let is_own = |origin: &[u8]| origin.strip_prefix(b"http://").is_some_and(|authority| authority == host);
    if only("origin")?.is_some_and(|origin| !is_own(origin)) {
        return Err("the request comes from another site");
    }
    if only("sec-fetch-site")?.is_some_and(|site| site != b"same-origin") {
        return Err("the request comes from another site");
    }
    Ok(())
}

/// Returns whether a host, with or without a port, is an IP address or `localhost`.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, "80"),
    };
    let is_address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    };
    port.parse::<u16>().is_ok() && (is_address || name.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(method: &Method, pairs: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        check(method, &headers).is_ok()
    }

    #[test]
    fn only_the_page_itself_may_change_something() {
        let host = ("host", "localhost:8080");
        let own = ("origin", "http://localhost:8080");
        let post = |pairs: &[_]| allowed(&Method::POST, pairs);
        assert!(post(&[host]), "a program that is no browser");
        assert!(post(&[host, own, ("sec-fetch-site", "same-origin")]));
        for forged in [
            "http://evil.example",
            "https://localhost:8080",
            "http://localhost:8081",
            "http://localhost",
            "http://localhost:8080.evil.example",
            "null",
            "",
        ] {
            assert!(!post(&[host, ("origin", forged)]), "{forged}");
        }
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(!post(&[host, own, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!post(&[host, own, own]), "twice");
        assert!(allowed(&Method::GET, &[host, ("sec-fetch-site", "cross-site")]), "a link leads here");
    }

    #[test]
    fn the_host_is_an_address_or_localhost() {
        let get = |host: &str| allowed(&Method::GET, &[("host", host)]);
        for local in ["localhost", "LocalHost:8080", "127.0.0.1:8080", "192.0.2.7", "[::1]:8080", "[::1]"] {
            assert!(get(local), "{local}");
        }
        for other in
            ["", "evil.example", "evil.example:8080", "localhost.evil.example", "::1", "localhost:x", "[::1"]
        {
            assert!(!get(other), "{other}");
        }
        assert!(!allowed(&Method::GET, &[]));
        assert!(!allowed(&Method::GET, &[("host", "localhost"), ("host", "localhost")]));
    }
}
