//! State of a port's link.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reason of a port that is down because nothing is attached to it. A port that is being attached
/// has this reason until its descriptors have arrived.
pub const NOTHING_ATTACHED: &str = "nothing is attached";

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

/// The link of a network card as its user wants it (ESX: `ethernetX.startConnected`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum WantedLink {
    /// The card is connected to its port group.
    #[default]
    Up,
    /// The card is unplugged: its port exchanges no frame with others, and QEMU shows the guest a
    /// card without carrier.
    Down,
}

impl WantedLink {
    /// Returns whether this is the default.
    pub fn is_up(&self) -> bool {
        *self == Self::Up
    }
}
