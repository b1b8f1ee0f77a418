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

/// Severity of an [`Event`], the least severe first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// An expected event: the system did what was asked.
    #[default]
    Info,
    /// Something was refused, lost or restarted.
    Warning,
    /// The user has to act.
    Error,
}

impl Level {
    /// All levels, the least severe first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Error];

    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}
