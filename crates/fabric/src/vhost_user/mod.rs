//! vhost-user, the border between a guest and the data plane.
//!
//! The front end (QEMU) sends requests ([`message`], read by [`parser`]) over a Unix socket
//! ([`connection`]). A [`session`] turns them into rings of a [`device`].

pub mod base;
pub mod connection;
pub mod device;
mod error;
pub mod features;
pub mod message;
pub mod parser;
pub mod session;
pub mod wire;

pub use device::Device;
pub use error::{BrokenRing, MessageError, SessionError};
pub use session::Session;
