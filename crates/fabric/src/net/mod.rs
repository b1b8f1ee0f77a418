//! Wire formats: Ethernet, VLAN tags, checksums, segmentation in software and flow hashes.
//!
//! Everything here works on bytes that no guest can change, and knows neither ports nor rings.

pub mod checksum;
pub mod ethernet;
pub mod flow_hash;
pub mod queue;
pub mod software_offload;
pub mod vlan;
