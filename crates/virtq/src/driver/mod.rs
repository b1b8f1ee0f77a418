//! The driver end of virtqueues: what a guest's driver does, for microguests and tests.
//!
//! [`Ram`] is the memory of such a guest, [`Ring`] the driver end of one queue with chains of any shape, [`TxDriver`] and
//! [`RxDriver`] a network card's two queues with buffers of their own, [`SocketTxDriver`] and [`SocketRxDriver`] those of a
//! socket device; [`burst`] is as light as a load generator needs.

mod buffers;
pub mod burst;
mod layout;
mod packed;
mod ram;
mod ring;
mod rx;
mod slots;
mod socket;
mod split;
mod tx;

pub use layout::QueueLayout;
pub use ram::Ram;
pub use ring::{Part, Ring, Used, UsedFault};
pub use rx::RxDriver;
pub use socket::{Payload, Shape, SocketRxDriver, SocketTxDriver};
pub use tx::TxDriver;

pub use crate::device::first_position;
