//! The driver end of virtqueues: what a guest's driver does, for microguests and tests.
//!
//! [`Ram`] is the memory of such a guest and [`Ring`] the driver end of one queue, with chains of
//! any shape. [`TxDriver`] and [`RxDriver`] are the two queues of a network card, with buffers of
//! their own; [`SocketTxDriver`] and [`SocketRxDriver`] are those of a socket device. [`burst`] is
//! a lighter driver end for load generators.

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
pub use ring::{Ring, Used, UsedFault};
pub use rx::RxDriver;
pub use socket::{Payload, Shape, SocketRxDriver, SocketTxDriver};
pub use tx::TxDriver;
