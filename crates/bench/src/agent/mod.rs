//! The agent: what runs inside a guest, a namespace, a microguest or on the host, and does what a caller asks.
//!
//! [`protocol`] says what can be asked, [`serve`] answers on any byte stream, a [`Backend`] does the work, and
//! [`Client`] asks.

mod address;
mod backend;
mod client;
mod lines;
pub mod protocol;
mod session;
#[cfg(test)]
mod tests;

pub use backend::{Backend, Run, Serving, Spinning, Stop};
pub use client::{Client, ClientError};
pub use session::serve;
