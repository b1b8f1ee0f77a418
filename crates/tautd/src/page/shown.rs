//! Answers of the page: HTML with a status, or another address.

use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use taut_api::ApiError;
use taut_page::frame::Frame;

/// An answer.
#[derive(Debug)]
pub(super) enum Shown {
    /// A page with its status.
    Page(u16, String),
    /// The address of the page to load after a change.
    SeeOther(String),
}

impl Shown {
    /// Shows a page.
    pub(super) fn page(text: String) -> Self {
        Self::Page(200, text)
    }

    /// Shows a page with another status than 200.
    pub(super) fn with_status(status: u16, text: String) -> Self {
        Self::Page(status, text)
    }

    /// Shows an error as a page.
    pub(super) fn error(frame: &Frame, error: &ApiError) -> Self {
        let status = error.kind.http_status();
        Self::Page(status, frame.error(status, error))
    }

    /// Shows a page, or why it cannot be shown.
    pub(super) fn of(frame: &Frame, page: Result<String, ApiError>) -> Self {
        match page {
            Ok(text) => Self::page(text),
            Err(error) => Self::error(frame, &error),
        }
    }
}

impl IntoResponse for Shown {
    fn into_response(self) -> Response {
        match self {
            Self::Page(status, text) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                (status, Html(text)).into_response()
            }
            Self::SeeOther(address) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        }
    }
}
