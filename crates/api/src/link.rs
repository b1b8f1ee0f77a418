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

macro_rules! link_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal: $text:literal,)+) => {
        /// Kind of reason for a link that is not up, or leads nowhere.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum LinkReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl LinkReason {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the code of the kind, as the guide has it.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// Returns the words that reasons of this kind begin with. Details may follow. Kinds
            /// that are told by the link itself, or by nothing, have none.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

link_reasons! {
    /// The VM of the card is off.
    PoweredOff = "powered-off": "the VM is off",
    /// The port has nothing attached. A port that is being attached has this reason until its
    /// descriptors have arrived.
    NothingAttached = "nothing-attached": "nothing is attached",
    /// The socket of the port waits for a front end.
    NotConnected = "not-connected": "no front end has connected",
    /// A front end has connected, and has shared no memory of its guest.
    MemoryNotShared = "memory-not-shared": "no guest memory was shared",
    /// The guest has not set up the rings of the device.
    DriverNotStarted = "driver-not-started": "the guest's driver has not started",
    /// The guest broke a ring.
    BrokenRing = "broken-ring": "",
    /// The front end has harmed the fabric and is not served any more.
    Quarantined = "quarantined": "in quarantine",
    /// The user has unplugged the card.
    TakenDown = "taken-down": "taken down",
    /// The VM was started without the device.
    NoDevice = "no-device": "the VM was started without the device",
    /// Somebody has set the interface of the host down.
    InterfaceDown = "interface-down": "somebody has set its interface down",
    /// The interface of the host has no carrier.
    NoCarrier = "no-carrier": "its interface has no carrier",
    /// The uplink has a link, and the probes of its team do not come back.
    NoPath = "no-path": "not used: its cable leads nowhere",
    /// Anything else: an error of the device or its connection, which the reason quotes.
    Other = "other": "",
}

impl LinkReason {
    /// Returns the kind of a reason that a port with such a link has.
    pub fn of(link: Link, reason: &str) -> Self {
        let begins = |kind: &&Self| !kind.as_str().is_empty() && reason.starts_with(kind.as_str());
        match link {
            Link::Broken => Self::BrokenRing,
            Link::Down | Link::Up => Self::ALL.iter().find(begins).copied().unwrap_or(Self::Other),
        }
    }

    /// Returns the place of the guide's section about the kind.
    pub fn guide(self) -> String {
        crate::guide::section("link", self.code())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_reason_is_told_by_its_begin() {
        let of = LinkReason::of;
        assert_eq!(of(Link::Down, "no guest memory was shared: …"), LinkReason::MemoryNotShared);
        assert_eq!(of(Link::Down, "the front end closed the connection"), LinkReason::Other);
        assert_eq!(of(Link::Broken, "nothing is attached"), LinkReason::BrokenRing);
        assert_eq!(of(Link::Up, "not used: its cable leads nowhere, by …"), LinkReason::NoPath);
        for kind in LinkReason::ALL.iter().filter(|kind| !kind.as_str().is_empty()) {
            assert_eq!(of(Link::Down, kind.as_str()), *kind);
        }
    }
}
