//! The memory that an XDP socket shares with the kernel: four rings, and chunks of memory with
//! frames.
//!
//! Rings and chunks survive this process, because the daemon has the descriptors as well. For each
//! chunk it can be told afterwards who has it:
//!
//! * A chunk of received frames is always in the fill ring, with the kernel, or in the receive
//!   ring. A [`Receiver`] moves entries from the receive ring to the fill ring, and notes in one
//!   word how many. Two indices follow from that word, so a successor completes a step in which its
//!   predecessor ended.
//! * A chunk of frames to be sent has a word with its place in the order of all sent frames, while
//!   it is on loan to the kernel. A [`Sender`] clears the word when the chunk comes back by the
//!   completion ring. A successor reads from that place and the transmit ring's index whether the
//!   kernel was given the chunk.

mod chunks;
mod mapping;
mod receiver;
mod ring;
mod sender;
#[cfg(test)]
mod tests;

pub use chunks::Chunks;
pub use receiver::Receiver;
pub use sender::Sender;

/// A ring or one of its entries is impossible: another process has written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rings of the XDP socket are damaged")]
pub struct Damaged;
