//! Wire formats: Ethernet, VLAN tags, checksums, segmentation in software, flow hashes and group
//! membership.
//!
//! Everything here works on bytes that no guest can change, and knows neither ports nor rings.

pub mod checksum;
pub mod ethernet;
pub mod flow_hash;
pub mod multicast;
pub mod queue;
pub mod software_offload;
pub mod vlan;
