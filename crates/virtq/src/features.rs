//! Feature bits of a virtio-net device (5.1.3) and of the transport (6), as masks.

/// Device handles frames with partial checksum.
pub const NET_CSUM: u64 = 1 << 0;
/// Driver handles frames with partial checksum.
pub const NET_GUEST_CSUM: u64 = 1 << 1;
/// Driver handles TCP over IPv4 longer than the MTU.
pub const NET_GUEST_TSO4: u64 = 1 << 7;
/// Driver handles TCP over IPv6 longer than the MTU.
pub const NET_GUEST_TSO6: u64 = 1 << 8;
/// Driver handles TSO with ECN.
pub const NET_GUEST_ECN: u64 = 1 << 9;
/// Device handles TCP over IPv4 longer than the MTU.
pub const NET_HOST_TSO4: u64 = 1 << 11;
/// Device handles TCP over IPv6 longer than the MTU.
pub const NET_HOST_TSO6: u64 = 1 << 12;
/// Device handles TSO with ECN.
pub const NET_HOST_ECN: u64 = 1 << 13;
/// A received frame may span several buffers.
pub const NET_MRG_RXBUF: u64 = 1 << 15;
/// Link status in the configuration space.
pub const NET_STATUS: u64 = 1 << 16;
/// Several queue pairs.
pub const NET_MQ: u64 = 1 << 22;
/// Driver handles UDP over IPv4 longer than the MTU.
pub const NET_GUEST_USO4: u64 = 1 << 54;
/// Driver handles UDP over IPv6 longer than the MTU.
pub const NET_GUEST_USO6: u64 = 1 << 55;
/// Device handles UDP longer than the MTU.
pub const NET_HOST_USO: u64 = 1 << 56;
/// Indirect descriptor tables (2.7.5.3).
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Notification thresholds instead of flags (2.7.7, 2.7.10).
pub const EVENT_IDX: u64 = 1 << 29;
/// vhost-user: protocol features can be negotiated.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Version 1 layout. Without it, the header has 10 bytes and fields have the guest's byte order.
pub const VERSION_1: u64 = 1 << 32;
/// Packed virtqueues (2.8).
pub const RING_PACKED: u64 = 1 << 34;
/// Buffers are used in the order in which they were made available (2.7.9, 2.8.11). A device may
/// return several by one entry.
pub const IN_ORDER: u64 = 1 << 35;

/// Transport features that the queues of this crate support.
pub const RING_FEATURES: u64 = VERSION_1 | EVENT_IDX | INDIRECT_DESC | RING_PACKED | IN_ORDER;
