//! `/v1/ports/{port}/capture`.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::IntoResponse;
use taut_api::error::ErrorKind;
use taut_api::fabric::PortId;
use taut_api::fabric::capture::{Directions, MAX_SNAPLEN};
use taut_api::{ApiError, path};
use tokio::sync::oneshot;

use super::body::{Failure, bad_query};
use super::{Shared, ports};
use crate::capture::Subject;
use crate::inbox::{CaptureRequest, Message};

/// The frames that are captured.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Longest part of a frame that is captured, in bytes; all of it by default.
    #[serde(default = "whole")]
    snaplen: u32,
    /// Frames that the port sends (`tx`), receives (`rx`), or `both` (default).
    #[serde(default)]
    #[param(value_type = Option<String>)]
    direction: Directions,
    /// Number of frames after which the answer ends.
    count: Option<u64>,
}

const fn whole() -> u32 {
    MAX_SNAPLEN
}

/// Captures the frames of a port, until the client leaves. The answer is pcapng.
#[utoipa::path(get, path = path::PORT_CAPTURE.pattern(), tag = "Ports",
    params(("port" = u32, Path, description = "Number of the port"), Wanted),
    responses((status = 200, body = String, content_type = "application/x-pcapng"),
        (status = 400, body = ApiError), (status = 404, body = ApiError), (status = 409, body = ApiError),
        (status = 503, body = ApiError)))]
pub(super) async fn capture_port(
    State(app): State<Shared>,
    Path(port): Path<String>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<impl IntoResponse, Failure> {
    let hint = "use snaplen=BYTES, direction=both, tx or rx, count=NUMBER";
    let Query(Wanted { snaplen, direction, count }) = wanted.map_err(|error| bad_query(&error, hint))?;
    if !(1..=MAX_SNAPLEN).contains(&snaplen) {
        let message = format!("snaplen={snaplen} is not between 1 and {MAX_SNAPLEN} bytes");
        return Err(ApiError::new(ErrorKind::Invalid, message, "leave it out for whole frames").into());
    }
    if count == Some(0) {
        return Err(ApiError::new(ErrorKind::Invalid, "count=0 asks for nothing", "use 1 or more").into());
    }
    let found = ports::all(&app)?.into_iter().find(|info| info.port.to_string() == port);
    let info = found.ok_or_else(|| {
        ApiError::new(
            ErrorKind::NotFound,
            format!("there is no port {port}"),
            "`taut port list` shows those that exist",
        )
    })?;
    let subject = Subject { port: info.port, owner: info.owner, snaplen, count };
    let (opened, socket) = app.captures.open()?;
    let (done, asked) = oneshot::channel();
    // Numbers of ports in the fabric have 16 bits.
    let port = PortId(subject.port as u16);
    app.inbox.send(Message::Capture(CaptureRequest { port, snaplen, directions: direction, socket, done }));
    asked.await.map_err(|_| {
        ApiError::new(ErrorKind::Unavailable, "the daemon is ending", "start it again, then try again")
    })??;
    let answer = opened.begun(&subject).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-pcapng")], Body::new(answer)))
}
