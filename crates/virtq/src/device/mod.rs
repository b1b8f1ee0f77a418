//! The device end of virtqueues, as a switch needs it: takes frames out of a transmit queue in
//! bursts and stores frames in a receive queue with one copy.
//!
//! No function allocates per frame, takes a lock or enters the kernel, except
//! [`TxFrame::write_to`] and [`TxQueue::send_run`]. A queue belongs to one thread at a time.
//!
//! # A burst
//! 1. [`TxQueue::peek`] checks up to [`BURST`] frames and copies their first bytes. The switch
//!    decides on that copy.
//! 2. [`RxQueue::deliver_run`] stores several frames in a row; [`RxQueue::deliver`] stores a frame
//!    that the run left over. [`Delivery::Full`] changes nothing; the frame may wait in its ring.
//! 3. [`RxQueue::publish`] once per receiver, [`TxQueue::complete`] once for the frames that are
//!    done.
//! 4. [`RxQueue::needs_interrupt`], [`TxQueue::needs_interrupt`].
//!
//! # Sleeping
//! `arm_kicks` asks the driver for a kick at the next buffer and tells whether a buffer came in the
//! meantime; the caller then looks again instead of sleeping. `suspend_kicks` spares the driver
//! kicks while the caller polls anyway.

/// Defines the notification methods that every queue has on top of its `ring`.
macro_rules! interrupts {
    () => {
        /// Tells whether the driver wants an interrupt for what was published since the last call.
        /// Each answer is given once: a caller that delays the interrupt must remember it.
        #[inline]
        pub fn needs_interrupt(&mut self) -> bool {
            self.ring.needs_interrupt()
        }

        /// Asks the driver not to kick.
        pub fn suspend_kicks(&mut self) {
            self.ring.suspend_kicks();
        }
    };
}

/// Defines the methods that the queues share whose `ring` alone knows position and pending buffers.
macro_rules! position_and_kicks {
    () => {
        /// Position of the first buffer that was not returned: the value for vhost-user's
        /// `GET_VRING_BASE`. Publish first.
        pub fn position(&self) -> u16 {
            self.ring.position()
        }

        /// Asks the driver to kick at the next buffer that it adds. Returns true if there is one
        /// already; the caller should then look again.
        pub fn arm_kicks(&mut self) -> bool {
            self.ring.arm_kicks()
        }
    };
}

mod chain;
mod packed;
mod ring;
mod rx;
pub mod socket;
mod split;
mod tx;

pub use rx::{Delivery, Run, RxQueue};
pub use tx::{FIRST_BYTES, TxFrame, TxQueue};

/// Most frames of one burst.
pub const BURST: usize = 64;

/// Longest frame in bytes, from the Ethernet header on: 64 KiB of IP with Ethernet header and two
/// tags, rounded up.
pub const MAX_FRAME_LEN: usize = 65_600;

/// Most parts of one chain.
pub const MAX_PARTS: usize = 1024;

#[cfg(test)]
mod hostile_driver;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod small_rings;
#[cfg(test)]
mod tests;
