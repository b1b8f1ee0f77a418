//! The real `taut-fabric`, sandboxed as it always is, with a `tautd` and guests that the tests play.
//!
//! Nothing here needs privileges: guests are driver ends of rings in a memfd, and sockets have no names in the file
//! system. That something does *not* arrive is shown by something that was sent later and does.

mod fabric;
mod frames;
mod guest;

mod control;
mod handover;
mod hostile;
mod lro;
mod memory;
mod moderation;
mod multiqueue;
mod offload;
mod shaping;
mod stream;
mod traffic;
mod vlan;
mod vsock;
mod vsock_guest;
mod vsock_handover;
mod vsock_host;
mod workers;
