//! The fabric's configuration, and the sockets and devices that are attached to its ports.
//!
//! [`fabric_config`] states the whole wanted configuration; [`coalescing`], [`lro`], [`mtu`],
//! [`shaping`] and [`dense`] choose the settings of single ports; [`vsock_devices`] configures VMCI
//! devices, [`uplinks`] the ports that lead outside, [`teams`] which of them a port uses, and
//! [`mirrors`] which ports get copies. [`front_ends`] limits what the other ends of ports may
//! bring. [`links`] shows guests which of their cards are connected. [`attachments`] lists what to
//! attach and detach. [`numbering`] and [`cid`] assign numbers when a document is written.

pub mod addresses;
pub mod attachments;
pub mod cid;
pub mod coalescing;
pub mod dense;
pub mod fabric_config;
pub mod front_ends;
pub mod links;
pub mod lro;
pub mod mirrors;
pub mod mtu;
pub mod numbering;
pub mod shaping;
pub mod teams;
pub mod uplinks;
pub mod vsock_devices;
