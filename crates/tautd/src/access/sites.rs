//! Protection from other sites in a user's browser.
//!
//! On the Unix sockets there is no cookie or token: whoever reaches one through `ssh -L` acts as
//! its user. Over TCP, a browser adds its cookie by itself. So any other site that the browser
//! shows may try to send requests here.
//!
//! - The API's socket is for programs. A request with `Origin` or `Sec-Fetch-Site` comes from a
//!   browser and is refused.
//! - Elsewhere, a request that changes something is refused if one of these headers names another
//!   site. Programs other than browsers send neither. A request with a cookie comes from a browser,
//!   so it must have one of them.
//! - On both Unix sockets, `Host` must be an IP address or `localhost`. Otherwise a site could have
//!   its own name resolved to the local address, and the browser would let its scripts read the
//!   answers (DNS rebinding). On the API's socket any name without a dot will do, such as that of a
//!   machine in the own network: no site of others has one. Over TCP any name will do: a browser
//!   has a cookie only for the name under which its user has logged in.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderValue, Method, header};
use taut_api::ApiError;
use taut_api::error::ErrorKind;

/// Way by which a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The API's Unix socket.
    Api,
    /// The page's Unix socket, usually by `ssh -L`.
    Page,
    /// TCP with TLS, which has both.
    Tls,
}

/// Refuses a request that another site may have sent.
pub(crate) fn check(way: Way, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let hint = match way {
        Way::Api => "programs name the host `localhost`; browsers are for the page, on page.sock",
        Way::Page => "open the page at http://localhost:PORT, the local end of ssh -L",
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
        match way {
            Way::Api if headers.contains_key("origin") || headers.contains_key("sec-fetch-site") => {
                return Err("the request comes from a browser, and the API's socket is for programs");
            }
            Way::Api if !is_local_host(host) && host.contains(&b'.') => {
                return Err("the API's socket answers only under an IP address or a name without a dot");
            }
            Way::Page if !is_local_host(host) => {
                return Err("the page answers only under an IP address or as localhost");
            }
            Way::Api | Way::Page | Way::Tls => {}
        }
        if matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        let scheme: &[u8] = if way == Way::Tls { b"https://" } else { b"http://" };
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
fn is_local_host(host: &[u8]) -> bool {
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

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| (*name, value.parse().unwrap()));
        pairs.fold(HeaderMap::new(), |mut headers, (name, value): (_, HeaderValue)| {
            headers.append(name, value);
            headers
        })
    }

    fn allowed(method: &Method, pairs: &[(&'static str, &str)]) -> bool {
        check(Way::Page, method, &headers(pairs)).is_ok()
    }

    #[test]
    fn over_tcp_the_origin_is_the_host_with_tls() {
        let post = |pairs: &[(&'static str, &str)]| check(Way::Tls, &Method::POST, &headers(pairs)).is_ok();
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
    fn the_socket_of_the_api_is_not_for_browsers() {
        let asks = |pairs: &[(&'static str, &str)]| {
            let headers = headers(pairs);
            [Method::GET, Method::POST].map(|method| check(Way::Api, &method, &headers).is_ok())
        };
        for host in ["tautd", "esx1:9105", "localhost", "localhost:8080", "127.0.0.1:9105", "[::1]:1"] {
            assert_eq!(asks(&[("host", host)]), [true; 2], "{host}");
        }
        // A site may have its name resolved to the local address; its scripts read answers then.
        for host in ["evil.example", "evil.example:8080", "tautd.evil.example", "evil.", "127.0.0.1.example"]
        {
            assert_eq!(asks(&[("host", host)]), [false; 2], "{host}");
        }
        let host = ("host", "localhost:8080");
        for sign in [("origin", "http://localhost:8080"), ("origin", "null"), ("sec-fetch-site", "none")] {
            assert_eq!(asks(&[host, sign]), [false; 2], "{sign:?}");
        }
        assert_eq!(asks(&[]), [false; 2]);
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
