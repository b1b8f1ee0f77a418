//! Admission of documents: their references, addresses, reservations and devices.
//!
//! [`documents`] checks a document against the others, [`reservations`] and [`limits`] against the
//! host's capacity, [`placement`] and [`passthrough`] against its CPUs and devices. Each refusal
//! states the values and what to do.

pub mod documents;
mod limits;
pub mod passthrough;
pub mod placement;
mod refusal;
pub mod reservations;
