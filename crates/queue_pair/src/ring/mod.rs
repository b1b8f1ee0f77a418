//! The two ends of a ring.
//!
//! A [`Producer`] writes bytes and publishes them; a [`Consumer`] reads bytes and publishes that
//! their room is free again. Each keeps its own position privately and checks the position of the
//! other side whenever it reads it. A violation is an error, after which the connection is reset:
//! positions that have once been wrong say nothing about the bytes.
//!
//! An end that waits announces it first, after it has published and signalled what it has done:
//!
//! 1. [`Producer::wait`] or [`Consumer::wait`];
//! 2. another look ([`Producer::room`], [`Consumer::look`]): the other side may have published
//!    before it could see the announcement;
//! 3. if there still is nothing, sleep until a signal comes;
//! 4. [`Producer::stop_waiting`] or [`Consumer::stop_waiting`].
//!
//! The other side publishes and then asks [`Producer::must_signal`] or [`Consumer::must_signal`].
//! Each announcement gets at most one signal.

mod atomic {
    pub(super) use std::sync::atomic::Ordering::{Relaxed, SeqCst};
    pub(super) use std::sync::atomic::{AtomicU32, fence};
}
mod consumer;
mod ends;
mod fault;
mod private;
mod producer;
#[cfg(test)]
mod tests;
mod wait;

pub use consumer::{Consumer, Look};
pub use ends::Ends;
pub use fault::{End, Hostile};
pub use private::Private;
pub use producer::Producer;
