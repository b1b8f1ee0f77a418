//! The event log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One entry of the event log. The store keeps events across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Sequence number, for `taut events --since`.
    pub seq: u64,
    /// Wall clock, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Severity.
    pub level: Level,
    /// Subject: `vm/NAME`, `portgroup/NAME`, `fabric` or similar.
    pub subject: String,
    /// Machine-readable kind such as `vm.started` or `port.broken`.
    pub kind: String,
    /// A sentence with values.
    pub message: String,
}

/// Severity of an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// An expected event: the system did what was asked.
    Info,
    /// Something was refused, lost or restarted.
    Warning,
    /// The user has to act.
    Error,
}
