//! What goes over the control connection.

use serde::{Deserialize, Serialize};

use super::config::{FabricConfig, PortId};
use super::session::SessionRecord;
use crate::link::Link;

/// From `tautd`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum ToFabric {
    /// First on every connection. Answered by [`FromFabric::Welcome`], then by all sessions and port states.
    Hello {
        /// Must equal [`super::PROTOCOL`].
        protocol: u32,
    },
    /// First after [`ToFabric::Hello`], to a fabric that is to take over from another that still serves. Until
    /// [`ToFabric::TakeOver`] it prepares what it is given and serves nothing: no ring, no device, no front end. Each
    /// [`ToFabric::Attach`] is answered by [`FromFabric::Prepared`], and no port's state is told. It ends when the connection does.
    StandBy,
    /// The other fabric serves nothing any more: begin. Answered by [`FromFabric::TookOver`], then by port states.
    TakeOver {
        /// Ports whose prepared attachments are as the other fabric left them. Those of other ports are let go.
        ports: Vec<PortId>,
    },
    /// The whole wanted state. Answered by [`FromFabric::Configured`].
    Configure(FabricConfig),
    /// Descriptors for a configured port. Replaces what the port had; a session leaves a listening socket in place, on
    /// which the next front end is awaited after it.
    Attach {
        /// The port.
        port: PortId,
        /// What the descriptors are.
        via: Attachment,
    },
    /// One listening Unix socket by which programs of the host reach a VMCI device's guest. Stays until it is replaced, or
    /// the device is no longer configured.
    HostListener {
        /// The device.
        port: PortId,
    },
    /// Answer to [`FromFabric::HostConnect`]; with the connected Unix socket, or with none if nobody listens.
    HostConnected {
        /// The device whose guest asked.
        port: PortId,
        /// The question's number.
        request: u32,
    },
    /// Unix sockets of connections between guests and the host, as the last fabric told them by [`FromFabric::HostStreams`].
    /// Only while standing by.
    HostStreams {
        /// Number of each one's connection, in the order of the descriptors.
        connections: Vec<u32>,
    },
    /// Stop after publishing every ring: the planned half of an upgrade. Sessions that have changed since they were last
    /// told are told before [`FromFabric::Stopped`], then the connection closes.
    Quit,
}

/// Descriptors that `tautd` hands to a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "via")]
pub enum Attachment {
    /// One connected socket: a vhost-user front end (or QEMU's `-netdev stream`) that listens.
    Connected,
    /// One listening socket: front ends connect to it, one at a time, again and again.
    Listening,
    /// One TAP descriptor.
    Tap {
        /// The kernel knows UDP segmentation, and was told that frames that leave it undone are welcome (`TUN_F_USO4`,
        /// `TUN_F_USO6`; Linux 6.2).
        uso: bool,
    },
    /// A session that another fabric began, with its descriptors.
    Session(SessionRecord),
}

/// From the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum FromFabric {
    /// Answer to [`ToFabric::Hello`].
    Welcome {
        /// The fabric's [`super::PROTOCOL`].
        protocol: u32,
        /// Its process.
        pid: u32,
        /// Revision of the configuration that it runs, 0 for none.
        revision: u64,
    },
    /// The configuration with this revision is in force.
    Configured {
        /// Its revision.
        revision: u64,
        /// Ports that could not be made, and why.
        refused: Vec<(PortId, String)>,
    },
    /// Answer to [`ToFabric::Attach`] while standing by.
    Prepared {
        /// The port.
        port: PortId,
        /// Why it cannot be served, if it cannot.
        refused: Option<String>,
    },
    /// Answer to [`ToFabric::TakeOver`]: everything prepared is served from now on.
    TookOver,
    /// Answer to [`ToFabric::Quit`]: everything that was taken has been published, and nothing more is read from or written
    /// to any ring, device or front end.
    Stopped,
    /// A session began or changed. Its descriptors travel with the message and replace all earlier ones.
    Session(SessionRecord),
    /// A session ended: the front end closed or broke the protocol. Duplicates of its descriptors should be closed.
    SessionEnded {
        /// The port.
        port: PortId,
        /// Why.
        reason: String,
    },
    /// A guest connects to this port of the host: to the Unix socket of its device with `_<to>` appended. Answered by
    /// [`ToFabric::HostConnected`].
    HostConnect {
        /// Its device.
        port: PortId,
        /// Given back with the answer.
        request: u32,
        /// The port that it connects to.
        to: u32,
    },
    /// While stopping, before [`FromFabric::Stopped`]: Unix sockets of connections between guests and the host, as many as one
    /// message carries. What the connections are is in the counters file.
    HostStreams {
        /// Number of each one's connection, in the order of the descriptors.
        connections: Vec<u32>,
    },
    /// A guest did something with its VMCI device that only an attacker or a broken driver does. Told when it begins, and
    /// not more than once in a second.
    Violation {
        /// Its device.
        port: PortId,
        /// What it did, with the values.
        what: String,
    },
    /// A port's link changed.
    PortState {
        /// The port.
        port: PortId,
        /// Its link.
        link: Link,
        /// Why it is not up; for [`Link::Broken`] what the guest did.
        reason: Option<String>,
        /// A descriptor ([`Attachment`]) was given and still serves.
        attached: bool,
    },
}
