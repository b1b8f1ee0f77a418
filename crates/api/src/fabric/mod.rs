//! The border `tautd` ↔ `taut-fabric`.
//!
//! `tautd` starts the fabric with two descriptors: [`fd::CONTROL`], a listening Unix socket on which it (or its
//! successor) connects; [`fd::COUNTERS`], a memfd laid out by [`counters`], which therefore outlives the fabric.
//! Everything else comes through the control connection, one at a time, newest wins:
//!
//! * `tautd` sends [`ToFabric`]: the whole wanted state in one [`config::FabricConfig`], and descriptors that it opened
//!   for ports ([`message::Attachment`]);
//! * the fabric sends [`FromFabric`]: what it applied, the state of ports, and after every change of a vhost-user
//!   session its whole [`session::SessionRecord`] with duplicates of all its descriptors. `tautd` keeps the newest one
//!   per port and hands it to the next fabric, which goes on where the last one ended.
//!
//! A planned upgrade has the next fabric prepare all of it ([`ToFabric::StandBy`]) while the last one still serves.
//!
//! A fabric without a connection goes on forwarding. A `tautd` that reconnects is sent all sessions again.

pub mod channel;
pub mod config;
pub mod counters;
pub mod drop_reason;
pub mod message;
pub mod session;

pub use config::{FabricConfig, PortId};
pub use drop_reason::DropReason;
pub use message::{FromFabric, ToFabric};
pub use session::SessionRecord;

/// Version of this border; both ends must have the same. Raised with every incompatible change.
pub const PROTOCOL: u32 = 3;

/// Descriptor numbers that the fabric is started with.
pub mod fd {
    /// Listening `SOCK_STREAM` Unix socket for the control connection.
    pub const CONTROL: i32 = 3;
    /// Counters memfd, sized by [`super::counters::FILE_SIZE`].
    pub const COUNTERS: i32 = 4;
    /// First number that must be closed.
    pub const END: i32 = 5;
}
