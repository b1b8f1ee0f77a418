//! The border `tautd` ↔ `taut-fabric`.
//!
//! `tautd` starts the fabric with two descriptors. [`fd::CONTROL`] is a listening Unix socket for
//! the control connection; a later `tautd` connects to it as well. [`fd::COUNTERS`] is a memfd laid
//! out by [`counters`], which outlives the fabric. Everything else comes through the control
//! connection, of which there is one; a new one replaces the old:
//!
//! * `tautd` sends [`ToFabric`]: the whole wanted state in one [`config::FabricConfig`], and
//!   descriptors that it opened for ports ([`message::Attachment`]);
//! * the fabric sends [`FromFabric`]: the applied revision, the state of ports, and after every
//!   change of a vhost-user session its whole [`session::SessionRecord`] with duplicates of all its
//!   descriptors. `tautd` keeps the newest record per port and hands it to the next fabric, which
//!   continues from there.
//!
//! In a planned upgrade the next fabric prepares all of it ([`ToFabric::StandBy`]) while the last
//! one still serves.
//!
//! A [`capture`] has a socket of its own, over which the fabric sends copies of a port's frames. It
//! ends with the process at either end.
//!
//! A fabric without a connection continues to forward. It sends all sessions again to a `tautd`
//! that reconnects.

pub mod ability;
pub mod capture;
pub mod channel;
pub mod closing;
pub mod config;
pub mod connections;
pub mod counters;
pub mod drop_reason;
pub mod foreign;
pub mod message;
pub mod session;

pub use ability::{Abilities, Ability};
pub use closing::ClosingQueue;
pub use config::{FabricConfig, PortId};
pub use drop_reason::DropReason;
pub use foreign::{ForeignFd, discard, keep_urgent, peek};
pub use message::{FromFabric, ToFabric};
pub use session::SessionRecord;

/// Version of this protocol; both ends must have the same. Raised with every incompatible change.
pub const PROTOCOL: u32 = 4;

/// Descriptor numbers at the start of the fabric. Smaller ones belong to the program that starts it
/// behind walls.
pub mod fd {
    /// Listening `SOCK_STREAM` Unix socket for the control connection.
    pub const CONTROL: i32 = 10;
    /// Counters memfd, sized by [`super::counters::FILE_SIZE`].
    pub const COUNTERS: i32 = 11;
}
