//! State of a port's link.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// No front end is connected, or the guest's driver has not started the rings.
    #[default]
    Down,
    /// Frames pass.
    Up,
    /// The guest broke its ring; the port stays down until the guest resets the device.
    Broken,
}
