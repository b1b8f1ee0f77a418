//! Admission of documents: their references, addresses, reservations and devices.
//!
//! [`documents`] checks a document against the others, [`reservations`] and [`limits`] against the
//! host's capacity, [`placement`], [`passthrough`], [`uplinks`] and [`pnics`] against its CPUs,
//! devices, network interfaces and cards, [`mtu`] against the MTUs of interfaces, and
//! [`network_io`] against the speed of uplinks. [`mirrors`] checks port mirroring. Each refusal
//! states the values and what to do.

pub mod documents;
mod limits;
pub mod mirrors;
pub mod mtu;
pub mod netdevs;
pub mod network_io;
pub mod passthrough;
pub mod placement;
pub mod pnics;
mod refusal;
pub mod reservations;
pub mod uplinks;
