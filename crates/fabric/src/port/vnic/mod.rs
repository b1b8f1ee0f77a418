//! The virtio-net rings of a guest.

mod rx;
mod tx;

pub use rx::Rx;
pub use tx::Tx;
