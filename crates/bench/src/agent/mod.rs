//! The agent: a program in a guest, a network namespace, a microguest or on the host that runs load
//! generators for a caller.
//!
//! [`protocol`] defines requests and answers, [`serve`] answers on any byte stream, a [`Backend`]
//! does the work, and [`Client`] sends requests.

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
