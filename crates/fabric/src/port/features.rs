//! virtio-net features: the ones that a port offers, and the offloads that a driver's choice
//! implies.

use taut_api::fabric::config::PortKind;
use taut_virtq::features as bits;

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

/// The virtio features that a port offers.
///
/// The control queue is not among them: QEMU answers it itself, and some front ends would pass it
/// on to the back end.
pub fn offered(kind: PortKind) -> u64 {
    let base = bits::RING_FEATURES | bits::NET_MRG_RXBUF | bits::PROTOCOL_FEATURES;
    match kind {
        PortKind::VhostUser { offloads, queue_pairs } => {
            base | if offloads { OFFLOADS } else { 0 } | if queue_pairs > 1 { bits::NET_MQ } else { 0 }
        }
        PortKind::Tap { .. } | PortKind::Stream | PortKind::Netdev | PortKind::Uplink => 0,
    }
}

/// The offloads that a driver with these features accepts in received frames.
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
    fn offered_features_exclude_the_control_queue_and_follow_the_port_kind() {
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
