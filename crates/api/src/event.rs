//! What happened, in order: the record that answers "why is it so".

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One entry of the event log. Events are kept in the store and survive restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Grows by one with each event; `taut events --since` takes it.
    pub seq: u64,
    /// Wall clock, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// How much it matters.
    pub level: Level,
    /// What it is about, as `vm/NAME`, `portgroup/NAME`, `fabric` …
    pub subject: String,
    /// Machine-readable kind such as `vm.started` or `port.broken`.
    pub kind: String,
    /// A sentence with values.
    pub message: String,
}

/// How much an [`Event`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Expected: the system did what was asked.
    Info,
    /// Worth a look: something was refused, lost or restarted.
    Warning,
    /// Somebody has to act.
    Error,
}
