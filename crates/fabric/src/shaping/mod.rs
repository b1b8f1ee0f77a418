//! Traffic shaping of ports (SPEC row VN-4).
//!
//! * [`bucket`]: one token bucket, nothing but arithmetic.
//! * [`shaper`]: the two buckets of a port and direction.
//! * [`queue`]: where frames wait on their way to a guest.

pub mod bucket;
pub mod queue;
pub mod shaper;
