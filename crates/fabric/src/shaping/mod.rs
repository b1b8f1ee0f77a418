//! Traffic shaping of ports (row VN-4).
//!
//! * Frames from a guest wait in its own transmit ring: the worker stops at the first frame that
//!   does not conform ([`gate`]), and comes back when it does. This needs no memory and loses
//!   nothing.
//! * Frames to a guest wait in a bounded queue ([`queue`]), which the worker drains by its timer
//!   (`port::paced`). A frame that finds the queue full is dropped, with
//!   [`DropReason::ShaperFull`](taut_api::fabric::DropReason::ShaperFull).
//!
//! Both ask a [`shaper`]: two token buckets ([`bucket`]) that know only the lengths of frames. The
//! queue pairs of a port share one shaper per direction. A shaper's state is not part of a session:
//! after a restart of the fabric, a port has its whole burst again.
//!
//! Order of locks: a transmit queue, then its port's shaper towards the switch; a receive queue,
//! then its port's shaper towards the guest.

pub mod bucket;
pub mod gate;
pub mod queue;
pub mod shaper;

use std::time::Duration;

/// Extra wait before a worker comes back for a frame, so that it finds several at once.
///
/// This limits a port to ten thousand wake-ups per second. [`bucket::TOLERANCE`] makes up for the
/// delay, but a burst is smaller by what the average rate yields in this time.
pub const PAUSE: Duration = Duration::from_micros(100);
