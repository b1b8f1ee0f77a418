//! Traffic shaping of ports (SPEC row VN-4).
//!
//! What a guest sends waits in its own transmit ring: the worker stops at the first frame that does not conform
//! ([`gate`]), and comes back when it does. No memory of ours, no loss. What a guest receives waits in a bounded queue
//! ([`queue`]), which the worker empties by its timer (`port::paced`); what finds the queue full is dropped, with
//! [`DropReason::ShaperFull`](taut_api::fabric::DropReason::ShaperFull).
//!
//! Both ask a [`shaper`], two token buckets ([`bucket`]) that know nothing of frames but their lengths. A port's queue
//! pairs share one for each direction. It is no part of a session: after a restart of the fabric, a port has its whole
//! burst again.
//!
//! Locks: a transmit queue's, then its port's shaper towards the switch; a receive queue's, then its port's shaper towards
//! the guest.

pub mod bucket;
pub mod gate;
pub mod queue;
pub mod shaper;

use std::time::Duration;

/// Whoever has to come back for a frame comes back this much later than the frame could go, for more than one at once:
/// at most ten thousand times a second. [`bucket::TOLERANCE`] makes up for it, but a burst is smaller by what the average
/// brings in this time.
pub const PAUSE: Duration = Duration::from_micros(100);
