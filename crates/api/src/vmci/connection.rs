//! A connection of VMCI sockets, as `GET /v1/vmci/connections` shows it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Cid;
use crate::Name;

/// Way by which an end of a connection exchanges its bytes with the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Rings of the VM's memory for queue pairs.
    Ring,
    /// Packets of the virtio device.
    Packets,
    /// A socket of a program on the host.
    Socket,
    /// None: the end is the service that attaches others to rings.
    Service,
}

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmciEnd {
    /// VM at this end; absent for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<Name>,
    /// Context ID of the machine.
    pub cid: Cid,
    /// Port of the socket.
    pub port: u32,
    /// Way of the bytes to and from this end.
    pub carrier: Carrier,
}

/// Type of a connection's sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketKind {
    /// A stream of bytes.
    Stream,
    /// Records.
    SeqPacket,
}

/// A connection of VMCI sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmciConnection {
    /// The end that has opened the connection.
    pub from: VmciEnd,
    /// The other end.
    pub to: VmciEnd,
    /// Type of the sockets.
    pub kind: SocketKind,
}
