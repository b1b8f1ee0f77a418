//! Types that user, command line, daemon and fabric share.
//!
//! The crate defines two borders:
//!
//! * **user ↔ `tautd`**: JSON documents over HTTP. [`path`] has the routes, [`route`] the bodies,
//!   [`patch`] the changes of a VM; the documents are in [`vm`], [`vmci`], [`network`],
//!   [`network_io`], [`mirror`], [`multicast`], [`teaming`], [`uplink`], [`pnic`], [`event`],
//!   [`audit`], [`token`], [`host`], [`kvm`], [`statistics`], [`tune`] and [`error`]. [`role`] says
//!   who may use which.
//! * **`tautd` ↔ `taut-fabric`**: [`fabric`], as framed messages with file descriptors over a Unix
//!   socket.
//!
//! [`calendar`] and [`printable`] write times and strangers' text the same way everywhere.
//!
//! The crate contains data and its validation. It opens no file, reads no clock, and starts no
//! thread.

pub mod audit;
pub mod calendar;
pub mod check;
pub mod coalescing;
pub mod confinement;
pub mod direction;
pub mod document;
pub mod enforcement;
pub mod error;
pub mod event;
pub mod fabric;
pub mod guide;
pub mod host;
pub mod import;
pub mod ip;
pub mod kvm;
pub mod latency;
pub mod link;
pub mod mac;
pub mod machine;
pub mod mirror;
pub mod mtu;
pub mod multicast;
pub mod name;
pub mod netdev;
pub mod network;
pub mod network_io;
pub mod passthrough;
pub mod patch;
pub mod path;
pub mod path_probe;
pub mod placement;
pub mod pnic;
pub mod printable;
pub mod queues;
pub mod resources;
pub mod role;
pub mod route;
pub mod shaping;
pub mod shares;
pub mod statistics;
pub mod teaming;
mod text;
pub mod token;
pub mod tune;
pub mod units;
pub mod uplink;
pub mod vlan;
pub mod vm;
pub mod vmci;
pub mod word;

pub use coalescing::Coalescing;
pub use document::Document;
pub use error::ApiError;
pub use mac::{GuestMac, MacAddr};
pub use mtu::Mtu;
pub use name::Name;
pub use path_probe::PathProbe;
pub use queues::QueuePairs;
pub use units::Bytes;
pub use vlan::Vlan;
