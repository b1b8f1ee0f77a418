//! Why a frame was dropped. Every drop has exactly one reason and one counter.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)+) => {
        /// Why a frame was dropped. The discriminant is the index of its counter; append only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// Every reason, in the order of its counters.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The reason as a short phrase.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

drop_reasons! {
    /// The receiver's ring stayed full for longer than a frame may wait.
    RingFull = "receive ring full",
    /// The receiver's port has no running rings.
    PortDown = "receiver's port is down",
    /// Nobody on the segment has the destination address.
    UnknownUnicast = "unknown destination address",
    /// The sender used an address that is not its own, and `forged_transmits` rejects (VN-10).
    ForgedTransmit = "forged source address",
    /// Shorter than an Ethernet header.
    Runt = "frame shorter than an Ethernet header",
    /// Longer than any buffer or offload allows.
    Oversize = "frame too long",
    /// The sender's virtio-net header contradicts itself or the frame.
    BadHeader = "bad virtio-net header",
    /// The receiver lacks the offload that this frame needs, and it could not be done in software.
    NoOffload = "receiver lacks the offload",
    /// The receiver's chain could not hold the frame.
    BufferTooSmall = "receive buffer too small",
    /// A host device (TAP, stream) refused the frame.
    DeviceRefused = "host device refused the frame",
    /// The frame carries a VLAN tag, and its port group takes untagged frames only (VN-9).
    VlanTag = "VLAN tag on an access port",
    /// No memory left in a bounded pool.
    PoolExhausted = "buffer pool exhausted",
    /// The queue in which frames wait for the receiver's shaped rate is full (VN-4).
    ShaperFull = "shaping queue full",
    /// The frame is for an address that no switch forwards (IEEE 802.1Q, table 8-1: 01:80:c2:00:00:0X).
    ReservedAddress = "reserved destination address",
    /// The source address is a group's.
    GroupSource = "group address as source",
    /// The frame is in a VLAN that the sender's port is not (VN-9).
    VlanNotAdmitted = "VLAN not admitted on the port",
    /// The frame carries an 802.1ad tag, or one tag behind another.
    StackedTag = "stacked VLAN tags",
}
