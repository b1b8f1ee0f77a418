//! What an event of the thread's is about: a kind and a number.

pub(super) const KIND: u64 = 0xff << 32;
pub(super) const NUMBER: u64 = u32::MAX as u64;

/// Control wants something.
pub(super) const WAKER: u64 = 1 << 32;
/// A guest has sent something; by its place.
pub(super) const TX_KICK: u64 = 2 << 32;
/// A guest has buffers again; by its place.
pub(super) const RX_KICK: u64 = 3 << 32;
/// A client waits at a guest's socket; by its place.
pub(super) const LISTENER: u64 = 4 << 32;
/// A client has said something; by its number.
pub(super) const CLIENT: u64 = 5 << 32;
/// A connection's socket is readable or writable; by its number.
pub(super) const STREAM: u64 = 6 << 32;
