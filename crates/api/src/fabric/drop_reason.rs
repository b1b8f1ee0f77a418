//! Reasons for dropped frames. Every drop has exactly one reason and one counter.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident $(@ $number:literal)? = $code:literal: $text:literal,)+) => {
        /// Reason for a dropped frame. The discriminant is the index of its counter; new reasons
        /// are appended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant $(= $number)?,)+
        }

        impl DropReason {
            /// All reasons, in the order of their counters.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the code of the reason, as documents, metrics and the guide have it.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// Returns the place of the guide's section about the reason.
            pub fn guide(self) -> String {
                crate::guide::section("drop", self.code())
            }

            /// Returns the reason as a short phrase.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Returns the explanation of the reason for users: one or two sentences.
            pub fn help(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_start(),)+ }
            }
        }
    };
}

drop_reasons! {
    /// The receiver's ring had no free buffer for longer than a frame may wait: the guest does not
    /// keep up, or has posted none.
    RingFull = "ring-full": "no free receive buffer",
    /// The receiver's port has no running rings.
    PortDown = "port-down": "receiver's port is down",
    /// No port of the segment has the destination address.
    UnknownUnicast = "unknown-unicast": "unknown destination address",
    /// The sender used a source address that is not its own, and `forged_transmits` is rejected.
    ForgedTransmit = "forged-transmit": "forged source address",
    /// Shorter than an Ethernet header, or than one with a tag if the frame has a tag.
    Runt = "runt": "frame shorter than an Ethernet header",
    /// Longer than the MTU of the port that counts it.
    Oversize = "oversize": "frame too long",
    /// The sender's virtio-net header is inconsistent, or contradicts the frame.
    BadHeader = "bad-header": "bad virtio-net header",
    /// The receiver lacks an offload that the frame needs, and software could not replace it.
    NoOffload = "no-offload": "receiver lacks the offload",
    /// The receiver's descriptor chain is too small for the frame.
    BufferTooSmall = "buffer-too-small": "receive buffer too small",
    /// A host device (TAP, stream) refused the frame.
    DeviceRefused = "device-refused": "host device refused the frame",
    /// The frame carries a VLAN tag, but its port group accepts only untagged frames.
    VlanTag = "vlan-tag": "VLAN tag on an access port",
    // Number 11 is free: its reason is gone. The others keep their numbers, because several
    // versions may use one counters file in turn.
    /// The queue of frames for a shaped receiver is full.
    ShaperFull @ 12 = "shaper-full": "shaping queue full",
    /// The destination address is one that no switch forwards (IEEE 802.1Q, table 8-1:
    /// 01:80:c2:00:00:0X).
    ReservedAddress = "reserved-address": "reserved destination address",
    /// The source address is a group address.
    GroupSource = "group-source": "group address as source",
    /// The frame's VLAN is not one of the sender's port, or not one of the receiver's. The drop is
    /// counted at the port that lacks the VLAN.
    VlanNotAdmitted = "vlan-not-admitted": "VLAN not admitted on the port",
    /// The frame carries an 802.1ad tag, or two nested tags.
    StackedTag = "stacked-tag": "stacked VLAN tags",
    /// A frame from an uplink has the source address of a port of the vSwitch: a switch outside
    /// has sent it back, or somebody outside pretends to be that port.
    OwnSource = "own-source": "address of an own port as source",
    /// A frame from outside arrived at another uplink than the one that its receiver uses: a switch
    /// outside has flooded it to several uplinks.
    WrongUplink = "wrong-uplink": "arrived at an uplink that the receiver does not use",
    /// No uplink of the sender's team has a link.
    NoUplink = "no-uplink": "no uplink with a link",
    /// The receiver's guest has given its card another address than the configured one, and
    /// `mac_changes` is rejected.
    AddressChanged = "address-changed": "receiver changed its address, which its port group rejects",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_documents() {
        for reason in DropReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.code());
        }
    }
}
