//! Messages of the control connection.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::ability::Abilities;
use super::capture::Directions;
use super::config::{FabricConfig, PortId, SegmentId};
use super::session::SessionRecord;
use crate::link::Link;

/// Messages from `tautd`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum ToFabric {
    /// First message of every connection. The fabric answers with [`FromFabric::Welcome`], then
    /// with all devices, listening sockets, sessions and port states.
    Hello {
        /// Must equal [`super::PROTOCOL`].
        protocol: u32,
    },
    /// First message after [`ToFabric::Hello`] to a fabric that takes over from another that still
    /// serves. Until [`ToFabric::TakeOver`] the new fabric prepares attachments and serves no ring,
    /// device or front end. It answers each [`ToFabric::Attach`] with [`FromFabric::Prepared`], and
    /// reports no port state. The state ends with the connection.
    StandBy,
    /// The other fabric has stopped: begin to serve. Answered by [`FromFabric::TookOver`], then by
    /// port states.
    TakeOver {
        /// Ports whose prepared attachments are still valid. The fabric drops those of other ports.
        ports: Vec<PortId>,
    },
    /// The whole wanted state. Answered by [`FromFabric::Configured`].
    Configure(FabricConfig),
    /// Descriptors for a configured port. They replace the port's former ones. A session leaves a
    /// listening socket in place, which later accepts the next front end.
    Attach {
        /// The port.
        port: PortId,
        /// Kind of the descriptors.
        via: Attachment,
    },
    /// A listening Unix socket through which programs on the host reach the guest of a VMCI device.
    /// The fabric keeps it until it is replaced or the device leaves the configuration.
    HostListener {
        /// The device.
        port: PortId,
    },
    /// The memory file for queue pairs of a VMCI device, which the configuration describes
    /// ([`SocketConfig::queue_pairs`](super::config::SocketConfig::queue_pairs)). The fabric keeps
    /// it as long as the configuration has the same file. Only for a fabric whose
    /// [`FromFabric::Welcome`] says that it has queue pairs.
    QueuePairMemory {
        /// The device.
        port: PortId,
    },
    /// Answer to [`FromFabric::HostConnect`], with the connected Unix socket, or without one if no
    /// program listens.
    HostConnected {
        /// Device whose guest asked.
        port: PortId,
        /// Number of the request.
        request: u32,
    },
    /// Unix sockets of connections between guests and the host, as the last fabric sent them in
    /// [`FromFabric::HostStreams`]. Only while standing by.
    HostStreams {
        /// Number of each connection, in the order of the descriptors.
        connections: Vec<u32>,
    },
    /// One end of a pair of `SOCK_SEQPACKET` Unix sockets, over which the fabric sends the frames
    /// of a port ([`super::capture`]) until the other end is closed or the port is gone. Answered
    /// over that socket. Only for a fabric whose [`FromFabric::Welcome`] says that it has captures.
    Capture {
        /// The port.
        port: PortId,
        /// Longest part of a frame that is sent, in bytes.
        snaplen: u32,
        /// Directions of the frames.
        directions: Directions,
    },
    /// Question whether all threads make progress. Answered by [`FromFabric::Pong`]. Only for a
    /// fabric whose [`FromFabric::Welcome`] says that it answers.
    Ping,
    /// Stop after publishing every ring: the planned half of an upgrade. The fabric first sends
    /// sessions that have changed, then [`FromFabric::Stopped`], then closes the connection.
    Quit,
}

/// Descriptors that `tautd` hands to a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "via")]
pub enum Attachment {
    /// A connected socket: a vhost-user front end (or QEMU's `-netdev stream`) that listens.
    Connected,
    /// A listening socket: front ends connect to it, one at a time.
    Listening,
    /// A TAP descriptor.
    Tap {
        /// True if the kernel supports UDP segmentation, and was told to accept unsegmented frames
        /// (`TUN_F_USO4`, `TUN_F_USO6`; Linux 6.2).
        uso: bool,
    },
    /// A packet socket that is bound to a network card, with a ring for received frames; and the
    /// file of the kernel that tells whether the card has a carrier.
    Packet(PacketSocket),
    /// An XDP socket that is bound to the first queue of a network card, with four other
    /// descriptors: the file of the kernel that tells whether the card has a carrier, the memory of
    /// its frames, the link of the program that hands it frames, and a packet socket that makes the
    /// card promiscuous. The last two are only kept open. Socket and memory of each other queue
    /// follow.
    Xdp(Box<XdpSocket>),
    /// A session that another fabric began, with its descriptors.
    Session(SessionRecord),
}

impl Attachment {
    /// Returns the number of descriptors of a device or listening socket.
    pub const fn descriptors(&self) -> usize {
        match self {
            Self::Xdp(setup) => 5 + 2 * setup.other_queues as usize,
            Self::Packet(_) => 2,
            Self::Connected | Self::Listening | Self::Tap { .. } | Self::Session(_) => 1,
        }
    }
}

/// Properties of a packet socket (packet(7)), as `tautd` has set it up. A virtio-net header of ten
/// bytes, without its last field, precedes each frame (`PACKET_VNET_HDR`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSocket {
    /// True if the kernel takes unsegmented UDP frames (Linux 6.2).
    pub uso: bool,
    /// Ring of received frames.
    pub ring: PacketRing,
}

/// Shape of a packet socket's ring in version 2 of its format (`TPACKET_V2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRing {
    /// Bytes of a slot, a multiple of 16.
    pub slot: u32,
    /// Number of slots in a block. Bytes behind the last one are not used.
    pub slots_per_block: u32,
    /// Bytes of a block, a multiple of the page size.
    pub block: u32,
    /// Number of blocks.
    pub blocks: u32,
}

/// Properties of the XDP sockets (`AF_XDP`) of a card, as `tautd` has set them up. Descriptors and
/// addresses in rings have the kernel's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpSocket {
    /// Ring of received frames.
    pub receive: XdpRing,
    /// Ring of chunks that the kernel may fill with frames.
    pub fill: XdpRing,
    /// Ring of frames to be sent.
    pub transmit: XdpRing,
    /// Ring of chunks whose frames the kernel has sent.
    pub completion: XdpRing,
    /// Memory of the frames.
    pub memory: XdpMemory,
    /// True if the card reads and writes frames in the memory, and has chunks in rings of its own.
    #[serde(default)]
    pub zero_copy: bool,
    /// Number of further queues of the card. Each has a socket with rings of the same shape, which
    /// receives only, and memory of the shape [`XdpMemory::receiving_only`].
    #[serde(default)]
    pub other_queues: u16,
}

/// Shape of a ring of an XDP socket: offsets in its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpRing {
    /// Number of entries, a power of two.
    pub entries: u32,
    /// Offset of the producer's index.
    pub producer: u64,
    /// Offset of the consumer's index.
    pub consumer: u64,
    /// Offset of the flags.
    pub flags: u64,
    /// Offset of the first entry.
    pub first: u64,
}

/// Shape of the memory file of an XDP socket. It begins with notes of the fabric for its successor:
/// a word for all received frames in the first page, then a word for each chunk of frames to be
/// sent. Chunks of received frames come before those of frames to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpMemory {
    /// Bytes of a chunk, a power of two.
    pub chunk: u32,
    /// Number of chunks for received frames.
    pub receiving: u32,
    /// Number of chunks for frames to be sent.
    pub sending: u32,
    /// Offset of the first chunk, a multiple of the page size.
    pub first: u64,
}

impl XdpMemory {
    /// Offset of the words for chunks of frames to be sent.
    pub const WORDS: u64 = 4096;

    /// Returns the shape of a memory with the same chunks for received frames, and no others.
    #[must_use]
    pub const fn receiving_only(&self) -> Self {
        Self { sending: 0, first: Self::WORDS, ..*self }
    }

    /// Returns the bytes of the file.
    pub const fn bytes(&self) -> u64 {
        self.first + self.chunk as u64 * (self.receiving as u64 + self.sending as u64)
    }
}

/// Groups of a segment with IGMP and MLD snooping.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentGroups {
    /// The first groups.
    pub groups: Vec<GroupMembers>,
    /// Number of further groups.
    pub more: u32,
    /// Ports that lead to multicast routers.
    pub routers: Vec<PortId>,
}

/// Members of a multicast group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMembers {
    /// VLAN of the group; 0 for none.
    pub vlan: u16,
    /// Address of the group.
    pub group: IpAddr,
    /// Ports that have joined it.
    pub ports: Vec<PortId>,
}

/// Messages from the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum FromFabric {
    /// Answer to [`ToFabric::Hello`].
    Welcome {
        /// The fabric's [`super::PROTOCOL`].
        protocol: u32,
        /// Version of taut; empty if the fabric is older than this field.
        #[serde(default)]
        version: String,
        /// Process ID of the fabric.
        pid: u32,
        /// Revision of the configuration in force, 0 for none.
        revision: u64,
        /// Abilities of the fabric.
        #[serde(flatten)]
        abilities: Abilities,
    },
    /// Answer to [`ToFabric::Ping`].
    Pong {
        /// Milliseconds for which a thread that serves guests was seen without progress.
        silent_ms: u64,
    },
    /// The configuration with this revision is in force.
    Configured {
        /// Its revision.
        revision: u64,
        /// Ports that could not be created, and why.
        refused: Vec<(PortId, String)>,
    },
    /// Answer to [`ToFabric::Attach`] while standing by.
    Prepared {
        /// The port.
        port: PortId,
        /// Reason that the attachment cannot be served, if any.
        refused: Option<String>,
    },
    /// Answer to [`ToFabric::TakeOver`]: the fabric serves everything that it prepared.
    TookOver,
    /// Answer to [`ToFabric::Quit`]: all taken packets are published, and the fabric no longer
    /// accesses any ring, device or front end.
    Stopped,
    /// A device or a listening socket that the port has, with its descriptor. Sent after
    /// [`FromFabric::Welcome`] and [`ToFabric::Attach`], before the port's session: a `tautd` that
    /// lacks the descriptor keeps it for the next fabric.
    Attached {
        /// The port.
        port: PortId,
        /// Kind of the descriptor: [`Attachment::Tap`], [`Attachment::Packet`],
        /// [`Attachment::Xdp`] or [`Attachment::Listening`].
        via: Attachment,
    },
    /// A session began or changed. Its descriptors travel with the message and replace all earlier
    /// ones.
    Session(SessionRecord),
    /// A session ended: the front end closed it or violated the protocol. The receiver should close
    /// its duplicates of the descriptors.
    SessionEnded {
        /// The port.
        port: PortId,
        /// Reason.
        reason: String,
        /// The front end harmed the fabric. The receiver attaches no other one to the port until
        /// its VM is restarted.
        #[serde(default)]
        quarantined: bool,
    },
    /// A guest connects to a port of the host: to its device's Unix socket with `_<to>` appended.
    /// Answered by [`ToFabric::HostConnected`].
    HostConnect {
        /// Device of the guest.
        port: PortId,
        /// Number of the request, to be repeated in the answer.
        request: u32,
        /// Port that the guest connects to.
        to: u32,
    },
    /// Sent while stopping, before [`FromFabric::Stopped`]: Unix sockets of connections between
    /// guests and the host, as many as fit into one message, and a file with payload that was
    /// copied out of guests' rings. The counters file describes the connections.
    HostStreams {
        /// Number of each connection, or of the file, in the order of the descriptors.
        connections: Vec<u32>,
    },
    /// A guest used its VMCI device in a way that only an attacker or a broken driver does. Sent at
    /// the first violation, then at most once per second.
    Violation {
        /// Device of the guest.
        port: PortId,
        /// Description of the violation, with values.
        what: String,
    },
    /// A guest has taken nothing from its VMCI device for a second, though payload or a connection
    /// waits for it. Sent once; then again when the guest has taken something in between.
    TakesNothing {
        /// Device of the guest.
        port: PortId,
    },
    /// A descriptor that a stranger sent to the port has been closing for more than a second. Sent
    /// once in the life of a port. The fabric serves all ports meanwhile.
    CloseBlocked {
        /// The port.
        port: PortId,
    },
    /// A Unix socket of a VMCI device takes no connections, because too many descriptors that came
    /// over it wait for their close. Sent once, and again after all of them were closed. The fabric
    /// then uses the socket again.
    HostSocketFull {
        /// Device of the guest.
        port: PortId,
        /// Port of the program that listens at this socket, which is the device's with `_<of>`
        /// appended; `None` for the device's socket itself.
        of: Option<u32>,
    },
    /// The groups of a segment have changed. Only for segments in [`FabricConfig::snooping`], after
    /// each configuration and then at most once a second.
    Groups {
        /// The segment.
        segment: SegmentId,
        /// Its groups.
        groups: SegmentGroups,
    },
    /// A port's link changed.
    PortState {
        /// The port.
        port: PortId,
        /// State of the link.
        link: Link,
        /// Reason that the link is not up; for [`Link::Broken`], what the guest did.
        reason: Option<String>,
        /// True if a descriptor ([`Attachment`]) was given and is still served.
        attached: bool,
        /// Reason that the memory for queue pairs is not used that the VMCI device was given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unused_queue_pairs: Option<String>,
    },
}
