//! Protection of the page's user from other sites in the same browser.
//!
//! On the Unix socket there is no cookie or token: whoever reaches it through `ssh -L` acts as its
//! user. Over TCP, a browser adds its cookie by itself. So any other site that the browser shows
//! may try to send requests here.
//!
//! - A request that changes something is refused if `Origin` or `Sec-Fetch-Site` names another
//!   site. Programs other than browsers send neither. A request with a cookie comes from a browser,
//!   so it must have one of them.
//! - On the Unix socket, `Host` must be an IP address or `localhost`. Otherwise a site could have
//!   its own name resolved to the local address, and would count as the page's origin (DNS
//!   rebinding). Over TCP any name will do: a browser has a cookie only for the name under which
//!   its user has logged in.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::{Request, State};
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

/// Way by which a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A Unix socket, usually by `ssh -L`.
    Socket,
    /// TCP with TLS.
    Tls,
}

/// Refuses requests of other sites, and protects each answer.
pub(super) async fn pass(State(way): State<Way>, request: Request, next: Next) -> Response {
    protect(match check(way, request.method(), request.headers()) {
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

/// Refuses a request that another site may have sent.
pub(crate) fn check(way: Way, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let hint = match way {
        Way::Socket => "open the page at http://localhost:PORT, the local end of ssh -L",
        Way::Tls => "use the page itself, under the address where you have logged in",
    };
    find_fault(way, method, headers)
        .map_or(Ok(()), |fault| Err(ApiError::new(ErrorKind::Forbidden, fault, hint)))
}

fn find_fault(way: Way, method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    let only = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().map(HeaderValue::as_bytes);
        if values.next().is_some() { Err("a header occurs twice") } else { Ok(first) }
    };
    let check = || -> Result<(), &'static str> {
        let host = only("host")?.ok_or("the request names no host")?;
        if way == Way::Socket && !is_local(host) {
            return Err("the page answers only under an IP address or as localhost");
        }
        if matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        let scheme: &[u8] = if way == Way::Socket { b"http://" } else { b"https://" };
        let (origin, site) = (only("origin")?, only("sec-fetch-site")?);
        let is_own = |origin: &[u8]| origin.strip_prefix(scheme).is_some_and(|authority| authority == host);
        if origin.is_some_and(|origin| !is_own(origin)) || site.is_some_and(|site| site != b"same-origin") {
            return Err("the request comes from another site");
        }
        if headers.contains_key(header::COOKIE) && origin.is_none() && site.is_none() {
            return Err("the request has a cookie and does not name its site");
        }
        Ok(())
    };
    check().err()
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
        check(Way::Socket, method, &headers).is_ok()
    }

    #[test]
    fn over_tcp_the_origin_is_the_host_with_tls() {
        let post = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_str(value).unwrap());
            }
            check(Way::Tls, &Method::POST, &headers).is_ok()
        };
        let host = ("host", "esx1.example:8443");
        let cookie = ("cookie", "__Host-taut=x");
        assert!(post(&[host]), "a program that is no browser");
        assert!(post(&[host, cookie, ("origin", "https://esx1.example:8443")]));
        assert!(post(&[host, cookie, ("sec-fetch-site", "same-origin")]));
        assert!(!post(&[host, cookie]), "a browser names its site");
        for forged in ["http://esx1.example:8443", "https://esx1.example", "https://evil.example", "null"] {
            assert!(!post(&[host, ("origin", forged)]), "{forged}");
        }
        assert!(!post(&[host, cookie, ("sec-fetch-site", "cross-site")]));
        assert!(!post(&[]));
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
