//! The page that asks a browser's user for a token, and the end of a session.

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_page::view::login::{self, FIELD, LOGIN};

use super::service::{Client, Refusal, Service, read_body};
use super::sessions::Sessions;
use crate::access::refusals::Reason;
use crate::page::guard;

/// Longest form in bytes.
const MOST_FORM: usize = 4096;

/// Shows the page, or takes its form.
pub(super) async fn answer(
    service: &Service,
    peer: &Client,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    match *request.method() {
        Method::GET | Method::HEAD => Ok(page(StatusCode::OK, None)),
        Method::POST => log_in(service, peer, request).await,
        _ => {
            let error =
                ApiError::new(ErrorKind::Invalid, "this page takes a form alone", "load it, and log in");
            Ok(page(StatusCode::METHOD_NOT_ALLOWED, Some(&error)))
        }
    }
}

async fn log_in(service: &Service, peer: &Client, request: Request<Body>) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let form = read_body(&parts.headers, body, MOST_FORM).await?;
    let token = match service.find(peer, field(&form)).await {
        Ok(token) => token,
        Err(refusal) if refusal.error().kind == ErrorKind::Unauthenticated => {
            service.note(Reason::Unauthenticated, peer.address);
            return Ok(page(StatusCode::UNAUTHORIZED, Some(refusal.error())));
        }
        Err(refusal) => return Err(refusal),
    };
    let cookie = service.begin_session(&token).map_err(|error| {
        let hint = "try again";
        let error = ApiError::new(ErrorKind::Internal, "no session can begin", hint).because(&error);
        Refusal::new(Reason::Busy, error)
    })?;
    tracing::info!(token = %token.name, from = %peer.address, "a session has begun");
    Ok(see_other("/", &cookie))
}

/// Ends a session.
pub(super) fn out(sessions: &mut Sessions, cookies: &str) -> Response {
    see_other(LOGIN, &sessions.end(cookies))
}

/// Shows the page, with the reason for which the last attempt was refused.
pub(super) fn page(status: StatusCode, refused: Option<&ApiError>) -> Response {
    guard::protect((status, Html(login::page(refused))).into_response())
}

/// Returns the token in a form. Tokens have no characters that a form would escape.
fn field(form: &[u8]) -> &[u8] {
    let mut fields = form.split(|byte| *byte == b'&');
    let token = fields.find_map(|field| field.strip_prefix(FIELD.as_bytes())?.strip_prefix(b"="));
    // A browser sends the spaces that came along with a copied token as `+`.
    let is_space = |byte: &u8| *byte == b'+' || byte.is_ascii_whitespace();
    let mut token = token.unwrap_or_default();
    while let Some((_, rest)) = token.split_first().filter(|(first, _)| is_space(first)) {
        token = rest;
    }
    while let Some((_, rest)) = token.split_last().filter(|(last, _)| is_space(last)) {
        token = rest;
    }
    token
}

fn see_other(address: &'static str, cookie: &str) -> Response {
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response();
    // Cookies are made of hexadecimal digits and constants.
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    guard::protect(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_taken_from_the_form_without_spaces() {
        assert_eq!(field(b"token=taut_0a"), b"taut_0a");
        assert_eq!(field(b"a=b&token=++taut_0a+&token=c"), b"taut_0a");
        for none in [&b""[..], b"token", b"token=", b"tokens=x", b"x=token"] {
            assert_eq!(field(none), b"", "{none:?}");
        }
    }
}
