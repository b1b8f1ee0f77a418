//! Frames that the fabric itself sends to ports: announcements, probes and queries.

use taut_api::direction::Direction;
use taut_api::fabric::DropReason;

use crate::port::{Body, Port, Put, RxEnd};

/// Hands a frame of the fabric to the end of a port's queue, if there is one, and has the port's
/// captures record it. Returns whether the end has taken the frame. The caller publishes it.
pub(super) fn put_own(port: &Port, end: Option<&mut RxEnd>, frame: &[u8]) -> bool {
    let dropped = match end.map(|end| end.put_bytes(frame)) {
        Some(Put::Done | Put::Queued) => None,
        Some(Put::NotNow(reason) | Put::Refused(reason)) => Some(reason),
        Some(Put::Failed(_)) | None => Some(DropReason::PortDown),
    };
    port.captures().record(Direction::Rx, dropped, frame.len(), &|space| Body::Host(frame).copy_to(space));
    dropped.is_none()
}
