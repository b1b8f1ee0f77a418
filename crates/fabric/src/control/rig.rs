//! Validation of configurations, for the fuzz targets.

use taut_api::fabric::{FabricConfig, PortId};

/// Ports of a configuration, by what validation decides about them.
#[derive(Debug)]
pub struct Validated {
    /// Numbers of valid ports.
    pub ports: Vec<PortId>,
    /// Numbers of valid vsock devices.
    pub sockets: Vec<PortId>,
    /// Numbers of the others, with the reasons.
    pub refused: Vec<(PortId, String)>,
}

/// Validates a configuration as the control thread does.
pub fn validate(config: &FabricConfig) -> Validated {
    let valid = super::validate::validate(config);
    Validated {
        ports: valid.ports.into_keys().collect(),
        sockets: valid.sockets.into_keys().collect(),
        refused: valid.refused,
    }
}
