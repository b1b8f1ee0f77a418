//! The agent: what runs inside a guest, a namespace, a microguest or on the host, and does what a caller asks.

mod backend;
pub mod protocol;

pub use backend::{Backend, Run, Serving, Stop};
