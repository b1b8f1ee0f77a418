//! Queue pairs for programs in Linux guests: the bytes of a VMCI stream go through memory that the
//! program shares with its host, instead of through packets of the kernel.
//!
//! The program connects or accepts a stream socket of `AF_VSOCK` as usual, and attaches it before
//! it reads or writes:
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use std::os::fd::OwnedFd;
//! use taut_vmci_client::{Attached, Options};
//!
//! fn ask(socket: &OwnedFd) -> std::io::Result<Vec<u8>> {
//!     let mut answer = Vec::new();
//!     match Attached::attach(socket, &Options::default()) {
//!         Ok(mut stream) => {
//!             stream.write_all(b"question")?;
//!             stream.shutdown_write()?;
//!             stream.read_to_end(&mut answer)?;
//!         }
//!         // The host may have attached the end: bytes may be missing, so close the socket.
//!         Err(reason) if reason.is_unclear() => return Err(std::io::Error::other(reason)),
//!         // An ordinary result: the socket works as before.
//!         Err(reason) => eprintln!("by packets, since {reason}"),
//!     }
//!     Ok(answer)
//! }
//! ```
//!
//! The peer need not attach its end, and cannot see whether this one is.
//!
//! # Waiting
//!
//! A call that finds nothing looks at the ring for a short time ([`Options::poll`]). Then it
//! announces its wait in shared memory, looks again, and sleeps until the fabric signals: a byte on
//! the control connection. Programs that wait for several connections at once do the same with
//! [`Attached::arm`], [`Attached::descriptors`] and [`Attached::disarm`]. One thread for each
//! direction may do so at once.
//!
//! # What is trusted
//!
//! The fabric is part of the host, but another program of the guest may write to the same memory.
//! Words are therefore checked; contradictions end the connection with an error. The bytes
//! themselves are not protected from programs that may open the device.

mod attached;
mod control;
mod device;
mod edges;
mod granted;
mod link;
mod options;
mod reason;
mod receive;
mod send;
mod spin;
mod time;
mod waiting;
mod wakers;

#[cfg(test)]
mod tests;

pub use attached::Attached;
pub use control::Transport;
pub use device::{Device, find_device, region};
pub use granted::Granted;
pub use options::Options;
pub use reason::NotAttached;
pub use time::Wait;
pub use waiting::{Interest, Polled, Ready};

pub use taut_queue_pair::{AttachRequest, Status};
