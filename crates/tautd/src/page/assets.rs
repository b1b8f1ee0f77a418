//! Style sheet, script and icon. They say nothing about the host, so they need no role.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use taut_page::asset::Asset;

use super::Part;

/// The name of an asset changes with its content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

pub(super) async fn serve(name: Part) -> Response {
    match name.0.as_deref().and_then(Asset::named) {
        Some(asset) => {
            let headers = [(header::CONTENT_TYPE, asset.media_type), (header::CACHE_CONTROL, FOR_EVER)];
            (headers, asset.content).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
