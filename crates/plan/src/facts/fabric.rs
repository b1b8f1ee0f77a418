//! The fabric and its ports.

use std::collections::BTreeMap;

use taut_api::fabric::PortId;
use taut_api::link::Link;

/// The fabric, as far as it has reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FabricSeen {
    /// The fabric answers, and has reported the state of each port of its newest configuration.
    pub ready: bool,
    /// Process number, while there is a process.
    pub pid: Option<u32>,
    /// Ports whose state was reported. Only these may be attached.
    pub ports: BTreeMap<PortId, PortSeen>,
    /// Ports whose front end has harmed the fabric, and the process of its VM at that time. A front
    /// end that taut did not start has none.
    pub quarantined: BTreeMap<PortId, Option<u32>>,
}

/// A port of the fabric.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortSeen {
    /// State of the link.
    pub link: Link,
    /// Why the link is not up.
    pub reason: Option<String>,
    /// The port has a socket or device that serves it.
    pub attached: bool,
    /// The front end of a VMCI device is connected, according to the fabric's last report.
    pub session: bool,
    /// A VMCI device has the socket by which programs of the host reach the guest.
    pub host_socket: bool,
    /// Why the fabric does not use the memory for queue pairs that a VMCI device is configured
    /// with.
    pub unused_queue_pairs: Option<String>,
}
