//! The real, sandboxed `taut-fabric`, with a `tautd` and guests that the tests play.
//!
//! The tests need no privileges: guests are driver ends of rings in a memfd, and sockets have no
//! names in the file system. A test shows that something does *not* arrive by something sent later
//! that does.

mod fabric;
mod frames;
mod guest;

mod address;
mod capture;
mod control;
mod handover;
mod hostile;
mod lro;
mod memory;
mod moderation;
mod mtu;
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
