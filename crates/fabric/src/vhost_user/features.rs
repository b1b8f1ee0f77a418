//! What the back end offers, and what a driver's choice means for its frames.

use taut_api::fabric::config::PortKind;
use taut_virtq::features as bits;
use vhost::vhost_user::message::VhostUserProtocolFeatures;

use crate::net::software_offload::Offloads;

const OFFLOADS: u64 = bits::NET_CSUM
    | bits::NET_GUEST_CSUM
    | bits::NET_GUEST_TSO4
    | bits::NET_GUEST_TSO6
    | bits::NET_GUEST_ECN
    | bits::NET_HOST_TSO4
    | bits::NET_HOST_TSO6
    | bits::NET_HOST_ECN
    | bits::NET_GUEST_USO4
    | bits::NET_GUEST_USO6
    | bits::NET_HOST_USO;

/// virtio features offered on a port. The control queue is not among them: some front ends would hand it to us, and
/// QEMU answers it by itself.
pub fn offered(kind: PortKind) -> u64 {
    let base = bits::RING_FEATURES | bits::NET_MRG_RXBUF | bits::PROTOCOL_FEATURES;
    match kind {
        PortKind::VhostUser { offloads, queue_pairs } => {
            base | if offloads { OFFLOADS } else { 0 } | if queue_pairs > 1 { bits::NET_MQ } else { 0 }
        }
        PortKind::Tap { .. } | PortKind::Stream => 0,
    }
}

/// Protocol features offered by a device with this configuration space. Some front ends refuse a device without one that offers
/// to tell it.
pub fn protocol(config_space: &[u8]) -> u64 {
    let all = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
        | VhostUserProtocolFeatures::STATUS;
    let config = VhostUserProtocolFeatures::CONFIG;
    if config_space.is_empty() { all.bits() } else { (all | config).bits() }
}

/// What a driver with these features takes.
pub fn receives(features: u64) -> Offloads {
    let has = |bit| features & bit != 0;
    Offloads {
        checksum: has(bits::NET_GUEST_CSUM),
        tso4: has(bits::NET_GUEST_TSO4),
        tso6: has(bits::NET_GUEST_TSO6),
        ecn: has(bits::NET_GUEST_ECN),
        uso4: has(bits::NET_GUEST_USO4),
        uso6: has(bits::NET_GUEST_USO6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_queue_is_not_offered_and_offloads_are_a_choice() {
        const CTRL_VQ: u64 = 1 << 17;
        let with = offered(PortKind::VhostUser { offloads: true, queue_pairs: 1 });
        let without = offered(PortKind::VhostUser { offloads: false, queue_pairs: 2 });
        assert_eq!((with | without) & CTRL_VQ, 0);
        assert_eq!(with & bits::NET_MQ, 0);
        assert_eq!(without & OFFLOADS, 0);
        assert_ne!(without & bits::NET_MQ, 0);
        assert_eq!(receives(without), Offloads::NONE);
        assert!(receives(with).uso6);
    }
}
