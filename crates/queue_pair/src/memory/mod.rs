//! Mapped memory, and the channels in it. The only module with `unsafe` code.
//!
//! Another process, or another VM, may write to the memory at any moment. Therefore no Rust
//! reference to its bytes exists: words are accessed atomically, bytes of rings are copied by raw
//! pointers.

mod channel;
mod copying;
mod mapped;
mod region;
mod ring_bytes;
#[cfg(test)]
mod tests;

pub use channel::Channel;
pub use copying::Copying;
pub use mapped::Memory;
pub use region::{Region, RegionError};

pub(crate) use mapped::as_uninit;
pub(crate) use ring_bytes::RingBytes;
