//! Tests that need root, network namespaces and TAP, but boot no guest.

mod bench;
mod check;
mod crash;
mod dense;
mod evidence;
mod guide;
mod hostile;
mod input;
mod latency;
mod load;
mod micro;
mod network;
mod policy;
mod preload;
mod settings;
mod shares;
mod vmci;
