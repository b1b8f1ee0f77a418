//! Tests that need root, network namespaces and TAP, but boot no guest.

mod access;
mod bench;
mod cards;
mod check;
mod console;
mod crash;
mod dense;
mod evidence;
mod first_hour;
mod guide;
mod hanging;
mod harm;
mod hostile;
mod input;
mod latency;
mod limits;
mod load;
mod micro;
mod network;
mod policy;
mod preload;
mod settings;
mod shape;
mod shares;
mod vmci;
mod walls;
