//! The kind of an entry: a port of the switch or a vsock device.

use taut_api::fabric::config::{FrontEndRules, PortConfig, PortKind, SocketConfig};

use crate::port::vnic_device::VnicDevice;

/// The configured object behind an entry.
#[derive(Debug)]
pub(in crate::control) enum Kind {
    /// A port of the switch.
    Port(PortConfig, VnicDevice),
    /// A vsock device.
    Socket(SocketConfig),
}

impl Kind {
    /// The owner's name, for logs.
    pub(super) fn owner(&self) -> &str {
        match self {
            Self::Port(config, _) => &config.owner,
            Self::Socket(config) => &config.owner,
        }
    }

    /// The name of the object's kind, for errors.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Port(PortConfig { kind: PortKind::VhostUser { .. }, .. }, _) => "a vNIC's port",
            Self::Port(PortConfig { kind: PortKind::Tap { .. }, .. }, _) => "a TAP port",
            Self::Port(PortConfig { kind: PortKind::Stream, .. }, _) => "an emulated card's port",
            Self::Port(PortConfig { kind: PortKind::Netdev, .. }, _) => "an interface's port",
            Self::Port(PortConfig { kind: PortKind::Uplink, .. }, _) => "an uplink",
            Self::Socket(_) => "a VMCI device",
        }
    }

    /// The rules for a front end.
    pub(super) fn rules(&self) -> FrontEndRules {
        match self {
            Self::Port(config, _) => config.front_end,
            Self::Socket(config) => config.front_end,
        }
    }

    /// Tells whether the object has vhost-user sessions.
    pub(super) fn has_front_end(&self) -> bool {
        match self {
            Self::Port(config, _) => matches!(config.kind, PortKind::VhostUser { .. }),
            Self::Socket(_) => true,
        }
    }

    /// The device of an emulated card's port; `None` for other kinds.
    pub(super) fn stream(&self) -> Option<&VnicDevice> {
        match self {
            Self::Port(PortConfig { kind: PortKind::Stream, .. }, device) => Some(device),
            _ => None,
        }
    }
}
